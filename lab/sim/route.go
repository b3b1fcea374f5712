package sim

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// routes contains the routes to single addresses. A reboot removes them. A change of HNS networks removes them as well,
// because it moves the default route to a different interface.
type routes struct {
	mu sync.Mutex
	to map[netip.Addr]bool
}

func newRoutes() *routes { return &routes{to: map[netip.Addr]bool{}} }

func (r *routes) ensure(to netip.Addr) (added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	added = !r.to[to]
	r.to[to] = true
	return added
}

func (r *routes) remove(to netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.to, to)
}

func (r *routes) has(to netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.to[to]
}

func (r *routes) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.to)
}

// Routes lists the addresses that the machine has a separate route to.
func (m *Machine) Routes() map[netip.Addr]bool {
	m.routes.mu.Lock()
	defer m.routes.mu.Unlock()
	return maps.Clone(m.routes.to)
}

// LoseRoutes removes all routes to single addresses, as if the network card were reset.
func (m *Machine) LoseRoutes() { m.routes.lose() }

type routesFace struct{ face }

var _ winos.Routes = routesFace{}

// Addresses returns the address of the machine, the loopback address, and the addresses of endpoints that are attached
// to the host.
func (f routesFace) Addresses(ctx context.Context) ([]netip.Addr, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	all := []netip.Addr{loopback()}
	if f.m.address != loopback() && !f.m.knobs.isLinkDown() {
		all = append(all, f.m.address)
	}
	if second := f.m.knobs.secondCard(); second.IsValid() {
		all = append(all, second)
	}
	f.m.hns.mu.Lock()
	defer f.m.hns.mu.Unlock()
	for _, n := range f.m.hns.networks {
		for _, e := range n.endpoints {
			if e.Attached {
				all = append(all, e.Address)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, nil
}

// Table returns the default route, if there is one, and the routes that were added.
func (f routesFace) Table(ctx context.Context) ([]winos.Route, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	if f.m.knobs.hasNoRoute() {
		return nil, nil
	}
	const card = "Ethernet"
	gateway := netip.AddrFrom4([4]byte{10, 0, 0, 1})
	table := []winos.Route{{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), NextHop: gateway,
		Interface: card, Metric: 25}}
	for _, to := range slices.SortedFunc(maps.Keys(f.m.Routes()), netip.Addr.Compare) {
		table = append(table, winos.Route{Destination: netip.PrefixFrom(to, to.BitLen()), NextHop: gateway,
			Interface: card, Metric: 25})
	}
	return table, nil
}

func (f routesFace) Ensure(ctx context.Context, to netip.Addr) (bool, error) {
	if err := f.change(ctx); err != nil {
		return false, err
	}
	if !to.Is4() {
		return false, fmt.Errorf("a route to %s: it is not an IPv4 address: %w", to, winos.ErrInvalidName)
	}
	if f.m.knobs.hasNoRoute() {
		return false, fmt.Errorf("default route: %w", winos.ErrNotFound)
	}
	return f.m.routes.ensure(to), nil
}

func (f routesFace) Remove(ctx context.Context, to netip.Addr) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	if !to.Is4() {
		return fmt.Errorf("a route to %s: it is not an IPv4 address: %w", to, winos.ErrInvalidName)
	}
	f.m.routes.remove(to)
	return nil
}
