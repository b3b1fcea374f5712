//go:build linux

package wine_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func TestA02_HostsBecomeNodesAtOnce(t *testing.T) {
	s := shared
	t.Logf("%d hosts were Ready after %.1f s", len(s.Fleet.Hosts), s.joined.Seconds())
	for _, h := range s.Fleet.Hosts {
		c := h.Server.Counters()
		if c.Connections != 1 || c.Commands > 4 || c.SFTPSessions > 1 || c.PowerShellStarts != 0 {
			t.Errorf("%s: %d connections, %d commands, %d SFTP sessions, %d PowerShells; want 1, at most 4, at "+
				"most 1, none", h.Name, c.Connections, c.Commands, c.SFTPSessions, c.PowerShellStarts)
			for line := range strings.Lines(s.Operator.Tail(1 << 20)) { // the log says why there was another connection
				if strings.Contains(line, h.Name) || strings.Contains(line, h.Address().Addr().String()) {
					t.Log(strings.TrimSpace(line))
				}
			}
		}
	}
}

func TestA04_ANodeIsWhatAWindowsNodeIs(t *testing.T) {
	s := shared
	h := s.host(steady)
	node := s.node(t, h)
	facts, err := windows(t, h).Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"kubernetes.io/os": "windows", "node.openshift.io/os_id": "Windows",
		contract.BuildLabel: "10.0.20348"} {
		if node.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, node.Labels[key], want)
		}
	}
	if !strings.EqualFold(node.Name, facts.Hostname) || node.Status.NodeInfo.MachineID != facts.Hostname ||
		node.Status.NodeInfo.SystemUUID != facts.MachineID ||
		node.Status.NodeInfo.BootID != facts.BootID {
		t.Errorf("the node %s is %+v, the host %+v", node.Name, node.Status.NodeInfo, facts)
	}
	if first := node.Spec.Taints[0]; first.Key != "os" || first.Value != "Windows" ||
		first.Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("the first taint is %v", first)
	}
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node.Name}
	if err = s.Client.Get(t.Context(), key, lease); err != nil {
		t.Fatal(err)
	}
	before := lease.Spec.RenewTime
	s.await(t, "kubelet to renew its lease", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, key, lease)
		return err == nil && before.Before(lease.Spec.RenewTime), "", err
	})
}

// The services are the services in the manifest and the daemon's own service. All run under the service manager, and
// no other service has our mark.
func TestA06_AllExpectedServicesRunAndNoOthers(t *testing.T) {
	s := shared
	for _, h := range s.Fleet.Hosts {
		want := []string{contract.ServiceDaemon}
		for _, service := range s.manifest(t, h).Services {
			want = append(want, service.Name)
		}
		for _, name := range []string{contract.ServiceContainerd, contract.ServiceKubelet,
			contract.ServiceHybridOverlay, contract.ServiceKubeProxy, contract.ServiceExporter,
			contract.ServiceCSIProxy} {
			if !slices.Contains(want, name) {
				t.Errorf("%s: the manifest lacks %s", h.Name, name)
			}
		}
		if slices.Contains(want, contract.ServiceCloudNode) {
			t.Errorf("%s has a cloud node manager, but the cluster is not on Azure", h.Name)
		}
		host := windows(t, h)
		all, err := host.Services.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			service, err := host.Services.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			managed, expected := strings.HasPrefix(service.Description, contract.ManagedDescription),
				slices.Contains(want, name)
			if managed != expected {
				t.Errorf("%s: service %s has the description %q; it must be managed: %v", h.Name, name,
					service.Description, expected)
			}
			if expected && (service.State != winos.ServiceRunning || service.PID == 0) {
				t.Errorf("%s: service %s is %s, process %d", h.Name, name, service.State, service.PID)
			}
			want = slices.DeleteFunc(want, func(w string) bool { return w == name })
		}
		if len(want) > 0 {
			t.Errorf("%s: the service manager does not know %v", h.Name, want)
		}
	}
}

// This test shows that the real containerd runs and answers on its pipe.
func TestA06_ContainerdIsTheRealOne(t *testing.T) {
	s := shared
	out := s.ctr(t, s.host(steady), "version")
	if !strings.Contains(out, "v2.") || strings.Count(out, "Revision") < 2 {
		t.Errorf("the output of ctr version is wrong:\n%s", out)
	}
	plugins := s.ctr(t, s.host(steady), "plugins", "ls")
	if !strings.Contains(plugins, "io.containerd.grpc.v1") || !strings.Contains(plugins, "cri") {
		t.Errorf("containerd's plugins are:\n%s", plugins)
	}
	for _, service := range []string{"containerd", "kubelet", "kube-proxy", "wicd", "hybrid-overlay", "csi-proxy",
		"windows_exporter"} {
		dir := machine(s.host(steady)).Path(contract.DirLog + `\` + service)
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) == 0 {
			t.Errorf("%s has no log: %v", service, err)
		}
	}
	if t.Failed() {
		fmt.Println(out, plugins)
	}
}
