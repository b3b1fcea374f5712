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
	// kubernetesService is the Service of the API servers, which list themselves in its EndpointSlice.
	kubernetesService = "kubernetes"
	nameServers       = "the EndpointSlice " + metav1.NamespaceDefault + "/" + kubernetesService
	// versionTime is how long one of them may take to say its version.
	versionTime = 5 * time.Second
	// maxServers is more than any cluster has.
	maxServers = 20
	// lookupTime is how long DNS may take to resolve the API server's name.
	lookupTime = 2 * time.Second
)

// At asks one API server at its own address, with the rights of a configuration. The certificate is
// checked for the name of the Service, which the certificates of all API servers have.
func At(config *rest.Config) func(address string) (Versioner, error) {
	return func(address string) (Versioner, error) {
		one := rest.CopyConfig(config)
		one.Host, one.Timeout = "https://"+address, versionTime
		one.ServerName = kubernetesService + "." + metav1.NamespaceDefault + ".svc"
		return discovery.NewDiscoveryClientForConfig(one)
	}
}

// serverVersion is that of the oldest API server: a kubelet may be newer than none of them. While a
// control plane is upgraded, they differ, and our connection leads to whichever is there. One that
// can't be reached at its own address does not count.
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

// servers are the addresses of the API servers with their ports, where several can be asked. No host has one of them.
func (r *common) servers(ctx context.Context, facts *blueprint.Facts) (addresses []string, err error) {
	type part struct{ Reserved, Addresses []string }
	known, err := orNone(last(ctx, r, facts, nameServers, func() (servers part, err error) {
		slice := &discoveryv1.EndpointSlice{}
		err = get(ctx, r.Live, slice, keyIn(metav1.NamespaceDefault, kubernetesService), nameServers)
		for _, endpoint := range slice.Endpoints {
			servers.Reserved = append(servers.Reserved, endpoint.Addresses...)
			for _, port := range slice.Ports {
				if len(endpoint.Addresses) > 0 && port.Port != nil && len(servers.Addresses) < maxServers {
					servers.Addresses = append(servers.Addresses,
						net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port))))
				}
			}
		}
		return servers, err
	}))
	reserve(facts, known.Reserved...)
	if addresses = known.Addresses; err != nil {
		return nil, err
	}
	if r.At == nil || len(addresses) == 1 {
		return nil, nil
	}
	return addresses, nil
}

// reserve adds addresses that no host has. Loopback ones are each machine's own, as in a lab.
func reserve(facts *blueprint.Facts, addresses ...string) {
	for _, text := range addresses {
		if address, err := netip.ParseAddr(text); err == nil && !address.IsLoopback() {
			facts.Servers = append(facts.Servers, address.WithZone(""))
		}
	}
}

// resolution is what DNS said of a host name.
type resolution struct {
	host      string
	addresses []string
}

// resolve reserves the addresses that the API server's name has in the operator's DNS, such as those of a load
// balancer. While DNS does not answer, they are as it said last.
func (r *common) resolve(ctx context.Context, facts *blueprint.Facts) {
	server, err := url.Parse(facts.APIServer)
	if err != nil || r.Lookup == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	addresses, err := r.Lookup(ctx, server.Hostname())
	if err != nil {
		logf.FromContext(ctx).V(1).Info("the API server's name is not resolved", "name", server.Hostname(),
			"reason", err.Error())
		if r.resolved.host == server.Hostname() {
			addresses = r.resolved.addresses
		}
	}
	*r.resolved = resolution{server.Hostname(), addresses}
	reserve(facts, addresses...)
}

// versionsAt are the versions of those that answer, all asked at once.
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

// older says whether a version can be read and is older than the other.
func older(a, b string) bool {
	parsed, err := version.ParseGeneric(a)
	if err != nil {
		return false
	}
	than, err := version.ParseGeneric(b)
	return err == nil && parsed.LessThan(than)
}
