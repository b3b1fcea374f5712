package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/sim"
)

// A Machine must become a node on every platform. The platforms differ in these points: who names the host and its
// Node, whether the host must be renamed, the operator's user name, and the programs on the host.
func TestA03_MachinesBecomeNodesOnEachPlatform(t *testing.T) {
	t.Parallel()
	for platform, want := range map[configv1.PlatformType]struct {
		connections int64
		service     string
	}{
		configv1.AzurePlatformType: {connections: 1, service: contract.ServiceCloudNode},
		configv1.GCPPlatformType:   {connections: 1},
		// On vSphere, hosts are copies of a template. They must be renamed, which needs a reboot.
		configv1.VSpherePlatformType: {connections: 2},
		configv1.NutanixPlatformType: {connections: 2},
	} {
		t.Run(string(platform), func(t *testing.T) {
			t.Parallel()
			o := options(1)
			o.Platform, o.Cloud = platform, cloud.Options{Provision: 200 * time.Millisecond}
			if platform == configv1.VSpherePlatformType { // vSphere's cloud provider compares names case-sensitively
				o.Hosts.Edit = func(_ int, host *sim.Options) { host.Hostname = strings.ToLower(host.Hostname) }
			}
			s := own(t, o)
			listed := s.hosts(t, 1)
			s.add(t, listed...)
			if _, err := s.NewMachineSet(t.Context(), "windows", 1); err != nil {
				t.Fatal(err)
			}
			m := s.running(t, "windows", 1)[0]
			s.ready(t, listed...)
			node, host := s.nodeOf(t, &m), s.host(t, &m)
			// On Azure, the node manager on the host needs a moment to set the provider ID.
			if platform == configv1.AzurePlatformType {
				node = s.initialised(t, node.Name)
			}
			if node.Spec.ProviderID != *m.Spec.ProviderID {
				t.Errorf("the Node's provider ID is %s, want that of its Machine, %s", node.Spec.ProviderID,
					*m.Spec.ProviderID)
			}
			switch platform {
			case configv1.VSpherePlatformType, configv1.NutanixPlatformType:
				if node.Name != m.Name {
					t.Errorf("the Node has the name %s, want the Machine's name %s", node.Name, m.Name)
				}
			default:
				if node.Name != host.Name {
					t.Errorf("the Node has the name %s, want %s", node.Name, host.Name)
				}
			}
			services, err := host.Machine.Host().Services.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(services, contract.ServiceCloudNode); got != (want.service != "") {
				t.Errorf("the host has the services %s", strings.Join(services, " "))
			}
			if c := host.Server.Counters(); c.Connections > want.connections+rebootTries(want.connections) {
				t.Errorf("the join needed %d connections", c.Connections)
			}
			if err = s.Scale(t.Context(), &m, "windows", -1); err != nil {
				t.Fatal(err)
			}
			if err = s.WaitMachineGone(t.Context(), soon, &m); err != nil {
				t.Error(err)
			}
		})
	}
}

// rebootTries returns the number of connections to a host while it was rebooting.
func rebootTries(connections int64) int64 { return connections - 1 }
