package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/blueprint"
)

const (
	// kubernetesService is the API servers' Service. Its EndpointSlice contains the addresses of all API servers.
	kubernetesService = "kubernetes"
	nameServers       = "the EndpointSlice " + metav1.NamespaceDefault + "/" + kubernetesService
	versionTime       = 5 * time.Second
	// maxServers limits how many API servers are asked for their version. No cluster has so many.
	maxServers = 20
	lookupTime = 2 * time.Second
)

// At returns a function that creates a Versioner for the API server at an address. The Versioner uses the credentials
// in config. It expects a certificate for the name of the Service kubernetes, because the certificates of all API
// servers contain this name.
func At(config *rest.Config) func(address string) (Versioner, error) {
	return func(address string) (Versioner, error) {
		one := rest.CopyConfig(config)
		one.Host, one.Timeout = "https://"+address, versionTime
		one.ServerName = kubernetesService + "." + metav1.NamespaceDefault + ".svc"
		return discovery.NewDiscoveryClientForConfig(one)
	}
}

// serverVersion sets facts.KubernetesVersion to the version of the oldest API server, because kubelets must not be
// newer than any API server. During an upgrade of the control plane, the versions differ, and the operator may be
// connected to any server. API servers that can't be reached at their own addresses don't count.
func (r *common) serverVersion(ctx context.Context, facts *blueprint.Facts) error {
	info, err := r.Version.ServerVersion()
	if err != nil {
		return fmt.Errorf("reading the API server's version: %w", err)
	}
	addresses, err := r.servers(ctx, facts)
	if err != nil {
		return err
	}
	oldest := info.GitVersion
	for _, other := range r.versionsAt(ctx, addresses) {
		if older(other, oldest) {
			oldest = other
		}
	}
	facts.KubernetesVersion = oldest
	return nil
}

// servers reserves the addresses of the API servers (see reserve). If there are several API servers, it returns their
// addresses with ports. If there is only one, it returns nil.
func (r *common) servers(ctx context.Context, facts *blueprint.Facts) (addresses []string, err error) {
	type part struct{ Reserved, Addresses []string }
	key := keyIn(metav1.NamespaceDefault, kubernetesService)
	known, err := orNone(lastOf(ctx, r, facts, origin{r.Live, key, nameServers},
		func(slice *discoveryv1.EndpointSlice) (servers part, err error) {
			for _, endpoint := range slice.Endpoints {
				servers.Reserved = append(servers.Reserved, endpoint.Addresses...)
				for _, port := range slice.Ports {
					if len(endpoint.Addresses) > 0 && port.Port != nil && len(servers.Addresses) < maxServers {
						servers.Addresses = append(servers.Addresses,
							net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port))))
					}
				}
			}
			return servers, nil
		}))
	reserve(facts, known.Reserved...)
	if err != nil || r.At == nil || len(known.Addresses) == 1 {
		return nil, err
	}
	return known.Addresses, nil
}

// reserve adds addresses to facts.Servers, so that no host may use them. It skips loopback addresses, because every
// host has them. In a lab, the API server may have a loopback address.
func reserve(facts *blueprint.Facts, addresses ...string) {
	for _, text := range addresses {
		if address, err := netip.ParseAddr(text); err == nil && !address.IsLoopback() {
			facts.Servers = append(facts.Servers, address.WithZone(""))
		}
	}
}

type resolution struct {
	host      string
	addresses []string
}

// resolve reserves the addresses that the operator's DNS returns for the API server's name, such as a load balancer's.
// If the lookup fails, resolve reserves the addresses in the last answer for the same name.
func (r *common) resolve(ctx context.Context, facts *blueprint.Facts) {
	server, err := url.Parse(facts.APIServer)
	if err != nil || r.Lookup == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	addresses, err := r.Lookup(ctx, server.Hostname())
	if err == nil {
		*r.resolved = resolution{server.Hostname(), addresses}
	} else {
		logf.FromContext(ctx).V(1).Info("the API server's name is not resolved", "name", server.Hostname(),
			"reason", err.Error())
	}
	if r.resolved.host == server.Hostname() {
		reserve(facts, r.resolved.addresses...)
	}
}

// versionsAt requests the versions of all API servers at the same time. Without an answer, a version is empty.
func (r *common) versionsAt(ctx context.Context, addresses []string) []string {
	versions := make([]string, len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() {
			one, err := r.At(address)
			if err == nil {
				var info *apiversion.Info
				if info, err = one.ServerVersion(); err == nil {
					versions[i] = info.GitVersion
				}
			}
			if err != nil {
				logf.FromContext(ctx).V(1).Info("an API server does not say its version", "address", address,
					"reason", err.Error())
			}
		})
	}
	asking.Wait()
	return versions
}

func older(a, b string) bool {
	parsed, err := version.ParseGeneric(a)
	if err != nil {
		return false
	}
	than, err := version.ParseGeneric(b)
	return err == nil && parsed.LessThan(than)
}
