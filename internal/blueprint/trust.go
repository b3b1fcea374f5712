package blueprint

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// trust are the CA bundles that nodes need before they can believe the API server. kubelet reads
// its own anew when the file changes; hybrid-overlay reads its at the start only.
func trust(in Input, bin binaries) (part, error) {
	bootstrap := contract.File{Path: contract.PathBootstrapCA, Content: in.Facts.BootstrapCA}
	if bin.has(contract.PathHybridOverlay) {
		bootstrap.Services = []string{contract.ServiceHybridOverlay}
	}
	return part{files: []contract.File{bootstrap, {Path: contract.PathKubeletCA, Content: in.Facts.KubeletCA}}}, nil
}

// authorities are what nodes trust beside what Windows does: every certificate once, sorted,
// whichever bundles it is in and in whatever order. Authorities of one registry are trusted for
// all, too: containerd, which pulls what has no mirror, knows Windows' root store only.
//
// While a bundle that something names is not there, or holds nothing that can be used, nothing is
// taken away.
func authorities(f Facts, before contract.Confidential, now time.Time) (root []string, registries map[string]string,
	rejected []*contract.Problem) {
	found := map[string]bool{}
	hold := false
	take := func(b Bundle) (own []string) {
		if b.Pending {
			hold = true
			return nil
		}
		own, flaws := certificates(b, now)
		rejected = append(rejected, flaws...)
		hold = hold || len(own) == 0 && len(flaws) > 0
		for _, c := range own {
			found[c] = true
		}
		return own
	}
	for _, b := range f.Trust {
		take(b)
	}
	registries = map[string]string{}
	for _, host := range slices.Sorted(maps.Keys(f.RegistryTrust)) {
		if own := take(f.RegistryTrust[host]); len(own) > 0 {
			registries[host] = strings.Join(own, "")
		}
	}
	if hold {
		for _, c := range before.Trust {
			found[c] = true
		}
		for host, bundle := range before.RegistryTrust {
			if registries[host] == "" {
				registries[host] = bundle
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), registries, rejected
}
