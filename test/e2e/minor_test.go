package e2e_test

import (
	"path/filepath"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/scene"
)

// The payload has a kubelet that is newer than the API server at both times, and the one of its minor at the second.
func TestA61_APlainClusterGetsTheKubeletThatFitsItOfSeveralMinors(t *testing.T) {
	o := rolling(2, 1)
	o.Kubernetes = true
	base, several, more := filepath.Join(t.TempDir(), "base"), filepath.Join(t.TempDir(), "several"),
		filepath.Join(t.TempDir(), "more")
	must(t, scene.WritePayload(base))
	must(t, scene.ChangePayload(several, base, scene.Change{Versions: map[string]string{kubeletExe: "v1.34.8"},
		Beside: map[string][]string{kubeletExe: {"v1.37.2"}}}))
	must(t, scene.ChangePayload(more, several, scene.Change{Versions: map[string]string{kubeletExe: "v1.36.3"},
		Beside: map[string][]string{kubeletExe: {"v1.37.2", "v1.34.8"}}}))
	o.Payload = several
	v := depart(t, o)
	running := map[string]uint32{}
	for _, h := range v.hosts {
		running[h.Name] = process(t, h, contract.ServiceContainerd)
		if now := v.node(t, h).Status.NodeInfo.KubeletVersion; now != "v1.34.8" {
			t.Fatalf("%s begins with kubelet %s", h.Name, now)
		}
	}
	must(t, v.Upgrade(t.Context(), "", more))
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
	for _, h := range v.hosts {
		if now := v.node(t, h).Status.NodeInfo.KubeletVersion; now != "v1.36.3" {
			t.Errorf("%s has kubelet %s", h.Name, now)
		}
		if process(t, h, contract.ServiceContainerd) != running[h.Name] {
			t.Errorf("%s: containerd, which is the same, was restarted", h.Name)
		}
	}
}
