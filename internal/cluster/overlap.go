package cluster

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// The method `consistent` checks whether facts of different objects contradict each other. Call it after all reads.
func (p *Plain) consistent(_ context.Context, spec v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	var all []error
	for _, pods := range facts.PodNetworks {
		for _, services := range facts.ServiceNetworks {
			if pods.Overlaps(services) {
				all = append(all, contract.NewProblem(contract.ReasonNetworksOverlap,
					"%s: podSubnet has %s, which overlaps %s of Services", nameKubeadm, pods, services))
			}
		}
	}
	if why := internal(facts); why != "" {
		where := nameClusterInfo + ": server of the kubeconfig"
		if spec.APIServer != "" {
			where = "spec.apiServer of the WindowsMachineConfig"
		}
		all = append(all, contract.NewProblem(contract.ReasonAPIServerInternal,
			"%s is %s, which is %s: set spec.apiServer of the WindowsMachineConfig to the URL where hosts reach "+
				"the API server",
			where, facts.APIServer, why))
	}
	return errors.Join(all...)
}

// internal returns why hosts can't use the API server's address, for example because it is a pod's address, or "".
func internal(facts *blueprint.Facts) string {
	server, err := url.Parse(facts.APIServer)
	if err != nil || facts.APIServer == "" {
		return "" // another check reports this
	}
	name := server.Hostname()
	if address, err := netip.ParseAddr(name); err == nil {
		has := func(network netip.Prefix) bool { return network.Contains(address.Unmap()) }
		if i := slices.IndexFunc(facts.ServiceNetworks, has); i >= 0 {
			return "an address of Services (" + facts.ServiceNetworks[i].String() + ")"
		}
		if i := slices.IndexFunc(facts.PodNetworks, has); i >= 0 {
			return "an address of pods (" + facts.PodNetworks[i].String() + ")"
		}
		return ""
	}
	short := []string{kubernetesService, kubernetesService + ".default"}
	if slices.Contains(short, name) || strings.HasSuffix(strings.TrimSuffix(name, "."+facts.ClusterDomain()), ".svc") {
		return "the name of a Service, which only the cluster's own DNS knows"
	}
	return ""
}
