package blueprint

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// trust are the CA bundles that nodes need before they can believe the API server. kubelet reads
// that of its clients anew when the file changes.
func trust(in Input, _ binaries) (part, error) {
	return part{files: []contract.File{{Path: contract.PathBootstrapCA, Content: in.Facts.BootstrapCA},
		{Path: contract.PathKubeletCA, Content: in.Facts.KubeletCA}}}, nil
}

// verifying names the services that verify the API server by the CA of when they started: hybrid-overlay reads the
// file, and the others their kubeconfigs, which the daemon keeps in step with it.
func (p part) verifying() (names []string) {
	all := append(contract.KubeconfigServices(), contract.ServiceHybridOverlay)
	for _, s := range p.services {
		if slices.Contains(all, s.Name) {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// trustBundles are what nodes trust beside what Windows does: every certificate once, sorted,
// whichever bundles it is in and in whatever order. CAs of one registry are trusted for
// all, too: containerd, which pulls what has no mirror, knows Windows' root store only.
//
// While a bundle that something names is not there, or holds nothing that can be used, what it brought
// stays. Of a registry's that is known. Any other may have brought every certificate, and names of
// registries, so nothing is taken away.
func trustBundles(f Facts, before contract.Confidential, now time.Time) (root []string, registries map[string]string,
	rejected []*contract.Problem) {
	found := map[string]bool{}
	take := func(b Bundle) (own []string, held bool) {
		if b.Pending {
			return nil, true
		}
		own, flaws := certificates(b, now)
		rejected = append(rejected, flaws...)
		for _, c := range own {
			found[c] = true
		}
		return own, len(own) == 0 && len(flaws) > 0
	}
	hold := false
	for _, b := range f.Trust {
		_, held := take(b)
		hold = hold || held
	}
	registries = map[string]string{}
	for _, host := range slices.Sorted(maps.Keys(f.RegistryTrust)) {
		own, held := take(f.RegistryTrust[host])
		if len(own) > 0 {
			registries[host] = strings.Join(own, "")
		} else if bundle := before.RegistryTrust[host]; held && bundle != "" {
			registries[host] = bundle
			for _, c := range before.Trust {
				if strings.Contains(bundle, c) {
					found[c] = true
				}
			}
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
