package blueprint

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// trust renders two CA bundles: BootstrapCA verifies the API server for nodes, and KubeletCA verifies API servers that
// connect to kubelet. A change of KubeletCA needs no restart, because kubelet reloads the file.
func trust(in Input, _ binaries) (part, error) {
	return part{files: []contract.File{{Path: contract.PathBootstrapCA, Content: in.Facts.BootstrapCA},
		{Path: contract.PathKubeletCA, Content: in.Facts.KubeletCA}}}, nil
}

// verifying returns the services that read the API server's CA only when they start. hybrid-overlay reads the CA from
// contract.PathBootstrapCA. The other services read the CA from their kubeconfigs, which the daemon keeps up to date.
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

// trustBundles returns the certificates that nodes trust in addition to Windows' own certificates. Each certificate
// appears once, and their order doesn't depend on the order of bundles. Every registry's CA is added to Windows' root
// store as well, because containerd uses only this store when it pulls without a mirror.
//
// If a bundle is missing or has no valid certificate, nodes keep certificates of the previous revision. For the bundle
// of a registry, they keep the previous certificates of that registry. For any other bundle, they keep all previous
// certificates and registries, because a revision doesn't record which certificates came from such a bundle.
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
