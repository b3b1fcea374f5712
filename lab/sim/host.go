package sim

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Host returns the interface to the operating system for a user at the console, who needs no process. While the machine
// is off, files, environment, certificates and facts can still be read. Services and networks then return ErrOff.
func (m *Machine) Host() winos.Host { return m.hostFor(nil) }

// hostFor returns the interface to the operating system for a process. nil stands for the console.
func (m *Machine) hostFor(p *process) winos.Host {
	f := face{m: m, p: p}
	return winos.Host{
		Services: serviceFace{f}, Files: fileFace{f}, Environment: environmentFace{f}, Trust: trustFace{f},
		System: systemFace{f}, Network: networkFace{f},
		Routes: routesFace{f}, Logs: logsFace{f},
		Programs: programsFace{f},
	}
}

// face is the machine from the perspective of one caller: a process or the console.
type face struct {
	m *Machine
	p *process // nil for the console
}

// The method look returns nil if the caller can read the state of the machine now. The method change returns nil if the
// caller can also change the state.
func (f face) look(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.p.alive()
}

func (f face) change(ctx context.Context) error {
	if err := f.look(ctx); err != nil {
		return err
	}
	if !f.m.knobs.isAdmin() {
		return winos.ErrDenied
	}
	return nil
}

type (
	serviceFace     struct{ face }
	fileFace        struct{ face }
	environmentFace struct{ face }
	trustFace       struct{ face }
	systemFace      struct{ face }
	networkFace     struct{ face }
)

var (
	_ winos.Services    = serviceFace{}
	_ winos.Files       = fileFace{}
	_ winos.Environment = environmentFace{}
	_ winos.Trust       = trustFace{}
	_ winos.System      = systemFace{}
	_ winos.Network     = networkFace{}
)

func (f serviceFace) List(ctx context.Context) ([]string, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	return f.m.services.list()
}

func (f serviceFace) Get(ctx context.Context, name string) (winos.Service, error) {
	if err := f.look(ctx); err != nil {
		return winos.Service{}, err
	}
	return f.m.services.get(name)
}

func (f serviceFace) Apply(ctx context.Context, config winos.ServiceConfig) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	return f.m.services.apply(config)
}

func (f serviceFace) Start(ctx context.Context, name string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	return f.m.services.startService(ctx, name)
}

func (f serviceFace) Stop(ctx context.Context, name string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	return f.m.services.stopService(ctx, name)
}

func (f serviceFace) Dependants(ctx context.Context, name string) ([]string, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	return f.m.services.dependants(name)
}

func (f serviceFace) Delete(ctx context.Context, name string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	return f.m.services.delete(ctx, name)
}

func (f serviceFace) DeleteAtStop(ctx context.Context, name string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	return f.m.services.deleteAtStop(name)
}

func (f fileFace) owner() *owner {
	if f.p == nil {
		return nil
	}
	return &f.p.owner
}

func (f fileFace) Open(path string) (io.ReadCloser, error) {
	file, err := f.m.volume.open(path, opening{flag: os.O_RDONLY, owner: f.owner()})
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f fileFace) Create(path string, access winos.Access) (io.WriteCloser, error) {
	file, err := f.m.volume.open(path, opening{
		flag: os.O_WRONLY | os.O_CREATE | os.O_TRUNC, access: access, exclusive: true, owner: f.owner(),
		anew: winos.MakesNew(path, access),
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f fileFace) Rename(from, to string) error {
	if err := f.p.alive(); err != nil {
		return err
	}
	return f.m.volume.rename(from, to)
}

func (f fileFace) Remove(path string) error {
	if err := f.p.alive(); err != nil {
		return err
	}
	return f.m.volume.remove(path)
}

func (f fileFace) RemoveAll(path string) error {
	if err := f.p.alive(); err != nil {
		return err
	}
	return f.m.volume.removeAll(path)
}

func (f fileFace) Stat(path string) (winos.FileInfo, error) {
	if err := f.p.alive(); err != nil {
		return winos.FileInfo{}, err
	}
	return f.m.volume.stat(path)
}

func (f fileFace) List(dir string) ([]winos.FileInfo, error) {
	if err := f.p.alive(); err != nil {
		return nil, err
	}
	return f.m.volume.list(dir)
}

func (f fileFace) MkdirAll(path string, access winos.Access) error {
	if err := f.p.alive(); err != nil {
		return err
	}
	return f.m.volume.mkdirAll(path, access)
}

func (f environmentFace) All(ctx context.Context) (map[string]string, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	return f.m.environment.all(), nil
}

func (f environmentFace) Set(ctx context.Context, name, value string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	if err := checkVariable(name, value); err != nil {
		return err
	}
	f.m.environment.set(name, value)
	return nil
}

func (f environmentFace) Unset(ctx context.Context, name string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	f.m.environment.unset(name)
	return nil
}

func (f trustFace) List(ctx context.Context) ([][]byte, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	return f.m.trust.list(), nil
}

func (f trustFace) Add(ctx context.Context, der []byte) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	return f.m.trust.add(der)
}

func (f trustFace) Remove(ctx context.Context, der []byte) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	f.m.trust.remove(der)
	return nil
}

func (f systemFace) Facts(ctx context.Context) (winos.Facts, error) {
	if err := f.look(ctx); err != nil {
		return winos.Facts{}, err
	}
	facts := f.m.system.facts()
	facts.BootID = f.m.power.boot().ID
	facts.Admin = f.m.knobs.isAdmin()
	facts.DiskFree, facts.DiskTotal = f.m.volume.free(), f.m.volume.total
	return facts, nil
}

func (f systemFace) Now() time.Time { return f.m.now() }

func (f systemFace) SetHostname(ctx context.Context, name string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	return f.m.system.setHostname(name)
}

func (f systemFace) Feature(ctx context.Context, name string) (winos.FeatureState, error) {
	if err := f.look(ctx); err != nil {
		return "", err
	}
	return f.m.system.feature(name)
}

func (f systemFace) EnableFeature(ctx context.Context, name string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	state, err := f.m.system.feature(name)
	if err != nil || state != winos.FeatureAbsent {
		return err
	}
	if !f.m.spend(ctx, f.m.knobs.costs().FeatureInstall) {
		return fmt.Errorf("enabling feature %s: %w", name, context.Cause(ctx))
	}
	if err := f.p.alive(); err != nil {
		return err
	}
	if err := f.m.system.fault(); err != nil {
		return fmt.Errorf("enabling feature %s: %w", name, err)
	}
	f.m.system.setFeature(name, winos.FeaturePending)
	return nil
}

func (f systemFace) Reboot(ctx context.Context, why string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	f.m.log.V(1).Info("reboot was asked for", "why", why)
	return f.m.requestReboot()
}

func (f systemFace) ExcludeFromDefender(ctx context.Context, exe string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	f.m.system.exclude(exe)
	return nil
}

// network returns nil if the caller can use the host network service now. check is the method look or the method
// change.
func (f networkFace) network(ctx context.Context, check func(context.Context) error) error {
	if err := check(ctx); err != nil {
		return err
	}
	if !f.m.power.isOn() {
		return ErrOff
	}
	return f.m.hnsReady()
}

func (f networkFace) NodeIP(ctx context.Context) (netip.Addr, error) {
	if err := f.look(ctx); err != nil {
		return netip.Addr{}, err
	}
	if f.m.knobs.hasNoRoute() {
		return netip.Addr{}, fmt.Errorf("default route: %w", winos.ErrNotFound)
	}
	if second := f.m.knobs.secondCard(); second.IsValid() {
		return second, nil
	}
	return f.m.address, nil
}

func (f networkFace) Listening(ctx context.Context) (map[int]string, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	if !f.m.power.isOn() {
		return nil, ErrOff
	}
	return f.m.ports.all(), nil
}

func (f networkFace) HNSNetwork(ctx context.Context, name string) (winos.HNSNetwork, error) {
	if err := f.network(ctx, f.look); err != nil {
		return winos.HNSNetwork{}, err
	}
	return f.m.hns.get(name)
}

func (f networkFace) EnsureEndpoint(ctx context.Context, network, endpoint string,
	address netip.Addr) (netip.Addr, error) {
	if err := f.network(ctx, f.change); err != nil {
		return netip.Addr{}, err
	}
	return f.m.hns.endpoint(network, endpoint, address)
}

func (f networkFace) RemoveHNSNetwork(ctx context.Context, name string) error {
	if err := f.network(ctx, f.change); err != nil {
		return err
	}
	defer f.m.routes.lose()
	removed, err := f.m.hns.remove(name)
	if removed {
		f.m.dropSessions()
	}
	return err
}
