package machine

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/windows-nodes/wmco/internal/inventory"
)

const (
	// lookups is the number of concurrent lookups. lookupTime is the time limit of all lookups together.
	lookups    = 32
	lookupTime = 5 * time.Second
)

func hasAddress(ctx context.Context, name string) bool {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
	return err == nil && len(found) > 0
}

// resolve looks up the names of Machines that have no IPv4 address. It reports for each name whether it has an IPv4
// address in DNS. A name whose lookup takes too long counts as a name without an address.
func (r *Reconciler) resolve(ctx context.Context, machines []inventory.Machine) map[string]bool {
	resolves := map[string]bool{}
	for _, m := range machines {
		for _, name := range inventory.NamesToResolve(m) {
			resolves[name] = false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(lookups)
	for _, name := range slices.Collect(maps.Keys(resolves)) {
		group.Go(func() error {
			has := r.hasAddress(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			resolves[name] = has
			return nil
		})
	}
	_ = group.Wait() // no lookup returns an error
	return resolves
}
