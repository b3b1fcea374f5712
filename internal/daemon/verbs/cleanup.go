package verbs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Where describes the process that runs the cleanup.
type Where struct {
	// Home is the directory that contains the RPC directory. It is empty if there is no RPC directory.
	Home string
	// Self is the path of the running program. The program can't delete its own exe, so the operator deletes the exe.
	Self string
	// Released reports that the host was released: its daemon started this cleanup, and no operator waits.
	Released bool
}

// Cleanup removes everything that the operator installed and restores the previous settings. An item that can't be
// removed is listed in the answer's Left, and isn't an error.
func Cleanup(ctx context.Context, host winos.Host, where Where) (contract.CleanupAnswer, error) {
	stateFile, err := open(host.Files)
	if err != nil {
		return contract.CleanupAnswer{}, err
	}
	c := &cleaning{host: host, state: stateFile, where: where, log: logr.FromContextOrDiscard(ctx),
		answer: contract.CleanupAnswer{Removed: []string{}}}
	if !stateFile.Exists() {
		if c.lost, err = state.Recognisable(host.Files); err != nil {
			return contract.CleanupAnswer{}, err
		}
	}
	// First remove active parts such as services, then passive ones, and the state file last.
	for _, step := range []func(context.Context){c.services, c.programs, c.networks, c.routes, c.environment,
		c.certificates, c.hostname, c.data, c.files, c.rpcDir} {
		step(ctx)
	}
	return c.answer, nil
}

// isInvolved reports whether the operator may have installed something on this host. This is the case if C:\k contains
// the operator's files, if the operator issued a credential for the host's node, or if a cleanup of the host has begun.
// On any other host, services and networks with the names that we use belong to another operator.
func isInvolved(ctx context.Context, host winos.Host, request contract.CleanupRequest) (bool, error) {
	if touched, err := state.Touched(host.Files); touched || err != nil || request.NodeName != "" {
		return err == nil, err
	}
	_, err := host.Services.Get(ctx, contract.ServiceCleanup)
	if errors.Is(err, winos.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// `mistaken` returns a problem if this is the wrong machine: a different node, or a different installation of Windows
// where an operator has installed something. If no operator has installed anything there, for example because the host
// was reinstalled, `mistaken` returns nil.
func mistaken(ctx context.Context, host winos.Host, request contract.CleanupRequest) error {
	stateFile, err := open(host.Files)
	if err != nil {
		return err
	}
	if is := stateFile.NodeName; is != "" && request.NodeName != "" && !strings.EqualFold(is, request.NodeName) {
		return contract.NewProblem(contract.ReasonHostDuplicate,
			"the machine that answers is node %.63q, not %.63q, and was not cleaned", is, request.NodeName)
	}
	if request.MachineID == "" {
		return nil
	}
	facts, err := host.System.Facts(ctx)
	if err != nil {
		return fmt.Errorf("reading the host's facts: %w", err)
	}
	if strings.EqualFold(facts.MachineID, request.MachineID) {
		return nil
	}
	known, err := state.Recognisable(host.Files)
	if err != nil {
		return err
	}
	c := &cleaning{host: host, state: stateFile}
	ours := c.ourServices(ctx)
	if len(c.answer.Left) > 0 {
		return &c.answer.Left[0] // ourServices could not read all services
	}
	if !known && !stateFile.Exists() && len(ours) == 0 {
		return nil
	}
	return contract.NewProblem(contract.ReasonHostDuplicate, "the machine that answers, which calls itself %.63q, "+
		"was not cleaned: it has another installation of Windows (MachineGuid %.40q) than node %.63q (%.40q)",
		facts.Hostname, facts.MachineID, request.NodeName, request.MachineID)
}

// open reads the state file. If an ordinary user could have written the file, open returns an empty state.
func open(files winos.Files) (*state.File, error) {
	trusted, err := state.Trusted(files)
	if err != nil {
		return nil, err
	}
	if !trusted {
		return &state.File{}, nil
	}
	return state.Read(files)
}

type cleaning struct {
	host  winos.Host
	state *state.File
	// `lost` is true if C:\k belongs to the daemon, but its state file is missing or damaged.
	lost   bool
	where  Where
	log    logr.Logger
	answer contract.CleanupAnswer
}

func (c *cleaning) removed(what, name string) {
	c.answer.Removed = append(c.answer.Removed, what+" "+name)
	c.log.Info("removed", "what", what, "name", name)
}

// `left` adds an error to the answer's Left. The arguments are as in fmt.Errorf.
func (c *cleaning) left(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if errors.Is(err, winos.ErrInUse) {
		c.answer.RebootAdvised = true
	}
	c.answer.Left = append(c.answer.Left, *contract.NewProblem(contract.ReasonCleanupFailed, "%v", err))
	c.log.Info("left", "detail", err.Error())
}

// `kept` adds an item to the answer's Kept. Such an item stays on purpose, and the cleanup doesn't fail.
func (c *cleaning) kept(what string) {
	c.answer.Kept = append(c.answer.Kept, what)
	c.log.Info("stays", "what", what)
}

// networks removes the HNS networks of pods, and the two networks that hybrid-overlay creates.
func (c *cleaning) networks(ctx context.Context) {
	names := []string{c.state.Manifest.HNSNetwork(), contract.HybridOverlayNetwork,
		"Base" + contract.HybridOverlayNetwork}
	earlier := slices.DeleteFunc(slices.Clone(c.state.Networks),
		func(name string) bool { return slices.Contains(names, name) })
	for _, name := range slices.Concat(earlier, slices.Compact(names)) {
		_, err := c.host.Network.HNSNetwork(ctx, name)
		if errors.Is(err, winos.ErrNotFound) || errors.Is(err, winos.ErrUnsupported) {
			continue
		}
		if err = c.host.Network.RemoveHNSNetwork(ctx, name); err != nil && !errors.Is(err, winos.ErrUnsupported) {
			c.left("removing network %s: %w", name, err)
			continue
		}
		c.removed("network", name)
	}
}

// routes removes the routes that the daemon added. A reboot would also remove them.
func (c *cleaning) routes(ctx context.Context) {
	c.state.Routes = slices.DeleteFunc(c.state.Routes, func(text string) bool {
		to, err := netip.ParseAddr(text)
		if err == nil {
			err = c.giveRouteBack(ctx, to)
		}
		if err != nil && !errors.Is(err, winos.ErrUnsupported) {
			c.left("removing the route to %.40s: %w", text, err)
			return false
		}
		c.removed("route to", text)
		return true
	})
	c.save()
}

// giveRouteBack removes a route that the daemon added. Exception: it keeps or restores the route to the metadata
// service. The removal of the pods' network also removed the host's own route to the metadata service, and the host
// needs this route to read its name when it joins again.
func (c *cleaning) giveRouteBack(ctx context.Context, to netip.Addr) error {
	if to != plan.MetadataAddress() {
		return c.host.Routes.Remove(ctx, to)
	}
	_, err := c.host.Routes.Ensure(ctx, to)
	return err
}

func (c *cleaning) environment(ctx context.Context) {
	for _, key := range slices.Sorted(maps.Keys(c.state.Environment)) {
		name := c.state.Environment[key].Name
		if err := apply.PutBack(ctx, c.host, c.state, key); err != nil {
			c.left("%w", err)
			continue
		}
		c.removed("environment variable", name)
	}
}

func (c *cleaning) certificates(ctx context.Context) {
	var stuck [][]byte
	for _, der := range c.state.Certificates {
		if err := c.host.Trust.Remove(ctx, der); err != nil {
			stuck = append(stuck, der)
			c.left("removing a trusted certificate: %w", err)
			continue
		}
		c.removed("trusted certificate", fmt.Sprintf("of %d bytes", len(der)))
	}
	c.state.Certificates = stuck
	c.save()
}

// hostname restores the previous host name, if the host still has the name that the operator set.
func (c *cleaning) hostname(ctx context.Context) {
	if c.state.HostnameBefore == "" {
		return
	}
	facts, err := c.host.System.Facts(ctx)
	if err == nil && strings.EqualFold(facts.Hostname, c.state.HostnameSet) {
		err = c.host.System.SetHostname(ctx, c.state.HostnameBefore)
		c.answer.RebootAdvised = true
	}
	if err != nil {
		c.left("giving the host the name %s back: %w", c.state.HostnameBefore, err)
		return
	}
	c.removed("host name", c.state.HostnameSet)
	c.state.HostnameBefore, c.state.HostnameSet = "", ""
	c.save()
}

func (c *cleaning) save() {
	if err := c.state.Save(); err != nil {
		c.left("%w", err)
	}
}

// rpcDir removes the files of earlier calls from the RPC directory. It keeps the answer of this call and the running
// program. On a host without SSH, the service that carries out calls removes the whole directory later.
func (c *cleaning) rpcDir(ctx context.Context) {
	if c.where.Home == "" {
		return
	}
	dir := RPCPath(c.where.Home)
	entries, err := c.host.Files.List(dir)
	if err != nil {
		return // there is no RPC directory
	}
	if _, err = c.host.Services.Get(ctx, contract.ServiceAttend); !errors.Is(err, winos.ErrNotFound) {
		return
	}
	for _, e := range entries {
		path := dir + `\` + e.Name
		if strings.EqualFold(path, c.where.Self) || strings.EqualFold(path, c.where.answer()) {
			continue
		}
		// Files that are still open don't matter here, because the operator later removes the whole directory.
		if err = c.host.Files.RemoveAll(path); err != nil {
			c.log.Info("a file in the RPC directory can't be removed", "name", e.Name, "detail", err.Error())
		}
	}
}
