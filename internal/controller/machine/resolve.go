package machine

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/windows-nodes/wmco/internal/inventory"
)

const (
	// lookups is how many names are looked up at once, and lookupTime how long all of them together
	// may take.
	lookups    = 32
	lookupTime = 5 * time.Second
)

// resolver looks up the names of Machines that tell no IPv4 address.
type resolver struct {
	// lookup is net.Resolver.LookupNetIP for IPv4, or a stand-in of it; it says whether a name has
	// an address.
	lookup func(ctx context.Context, name string) bool
}

func newResolver() *resolver {
	return &resolver{lookup: func(ctx context.Context, name string) bool {
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
		return err == nil && len(found) > 0
	}}
}

// resolve answers which of the names that Machines are to be reached by have an IPv4 address. A
// name whose answer does not come in time has none for now.
func (r *resolver) resolve(ctx context.Context, machines []inventory.Machine) map[string]bool {
	resolves := map[string]bool{}
	for _, m := range machines {
		for _, name := range inventory.NamesToResolve(m) {
			resolves[name] = false
		}
	}
	if len(resolves) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	names := make([]string, 0, len(resolves))
	for name := range resolves {
		names = append(names, name)
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(lookups)
	for _, name := range names {
		group.Go(func() error {
			has := r.lookup(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			resolves[name] = has
			return nil
		})
	}
	_ = group.Wait() // no look-up answers an error
	return resolves
}
