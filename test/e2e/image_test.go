package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/registry"
	"github.com/windows-nodes/wmco/lab/scene"
)

// The registry loses the image while one node of two has what is new, and the operator loses its disk.
func TestA61_NodesGetAPayloadFromAnImageAndStayAsTheyAreWhileARegistryHasLostIt(t *testing.T) {
	t.Parallel()
	o := rolling(2, 1)
	o.Kubernetes = true
	cache := filepath.Join(t.TempDir(), "cache")
	emptyDisk(t, cache)
	o.Arguments = []string{"--payload-cache-dir", cache}
	ca := registry.NewCA(t, "registries")
	from := registry.Start(t, ca)
	// None is the kubelet of the payload that the operator brings, which a host may have got already.
	dirs, images := payloads(t, from, "v1.34.8", "v1.35.4", "v1.36.1")

	s := own(t, o)
	trust := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "registries"},
		Data: map[string]string{"ca": string(ca.PEM)}}
	must(t, s.Client.Create(t.Context(), trust))
	o.Settings.Trust.AdditionalCA = trust.Name
	s.ships(t, o, images[0])
	v := s.depart(t, o)
	v.runs(t, "v1.34.8", "v1.34.8")

	from.Asked()
	o.Settings.Payload.Image = images[1]
	must(t, s.Configure(t.Context(), *o.Settings))
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
	v.runs(t, "v1.35.4", "v1.35.4")
	var blobs []string
	for _, asked := range from.Asked() {
		if strings.Contains(asked, "/blobs/") {
			blobs = append(blobs, path.Base(asked))
		}
	}
	if slices.Sort(blobs); len(slices.Compact(blobs)) != 2 {
		t.Errorf("pulled were %d blobs instead of what is new: payload.json and kubelet", len(blobs))
	}
	for _, n := range v.Nodes() {
		if want := newBytes(t, dirs[0], dirs[1]); n.StagedBytes != want {
			t.Errorf("%s was sent %d bytes, and %d are new", n.Node, n.StagedBytes, want)
		}
	}

	full := v.hosts[1]
	facts, err := full.Machine.Host().System.Facts(t.Context())
	must(t, err)
	full.Machine.SetDiskFree(1 << 20)
	v.from = v.instance(t, full).Status.Revision
	o.Settings.Payload.Image = images[2]
	must(t, s.Configure(t.Context(), *o.Settings))
	v.arrived(t, v.hosts[0])
	must(t, v.Operator.Kill())
	emptyDisk(t, cache)
	from.Lose(true)
	must(t, v.Operator.Start(t.Context()))
	v.unavailable(t, contract.ReasonPayloadImageNotPulled, "does not have the image")
	v.runs(t, "v1.36.1", "v1.35.4")
	v.inService(t, v.hosts...)
	from.Lose(false)
	full.Machine.SetDiskFree(facts.DiskFree)
	v.arrived(t)
	v.well(t)
	v.runs(t, "v1.36.1", "v1.36.1")
}

// payloads are such with these versions of kubelet, each in an image of a registry.
func payloads(t *testing.T, r *registry.Registry, versions ...string) (dirs, images []string) {
	t.Helper()
	from := filepath.Join(t.TempDir(), "base")
	must(t, scene.WritePayload(from))
	for _, version := range versions {
		dir := filepath.Join(t.TempDir(), version)
		must(t, scene.ChangePayload(dir, from, scene.Change{Versions: map[string]string{kubeletExe: version}}))
		dirs = append(dirs, dir)
		images = append(images, r.PushImage(t, registry.Payload(t, dir), "windows-nodes/payload"))
		from = dir
	}
	return dirs, images
}

// emptyDisk is a directory without anything, which the operator may write into whoever it is.
func emptyDisk(t *testing.T, dir string) {
	t.Helper()
	must(t, os.RemoveAll(dir))
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.Chmod(dir, 0o777))                             //nolint:gosec // it is the test's own
	must(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o711)) //nolint:gosec // that of t.TempDir is closed
}

// ships has the operator use an image, and waits until it does.
func (s *stage) ships(t *testing.T, o scene.Options, image string) {
	t.Helper()
	before := s.desired(t, "")
	o.Settings.Payload.Image = image
	must(t, s.Configure(t.Context(), *o.Settings))
	s.desired(t, before)
}

// desired is the desired revision, once there is another one than before.
func (s *stage) desired(t *testing.T, before string) (revision string) {
	t.Helper()
	s.await(t, "another desired revision", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		revision = config.Status.DesiredRevision
		return revision != before, fmt.Sprintf("%+v", config.Status.Conditions), client.IgnoreNotFound(err)
	})
	return revision
}

// unavailable waits until the WindowsMachineConfig says that it is not available, and why.
func (s *stage) unavailable(t *testing.T, reason contract.Reason, words string) {
	t.Helper()
	s.await(t, "the reason", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		return slices.ContainsFunc(config.Status.Conditions, func(c metav1.Condition) bool {
			return c.Status == metav1.ConditionFalse && c.Reason == string(reason) && strings.Contains(c.Message, words)
		}), fmt.Sprintf("%+v", config.Status.Conditions), err
	})
}

// runs checks the version of each host's kubelet.
func (v *trip) runs(t *testing.T, versions ...string) {
	t.Helper()
	for i, h := range v.hosts {
		if now := v.node(t, h).Status.NodeInfo.KubeletVersion; now != versions[i] {
			t.Errorf("%s has kubelet %s instead of %s", h.Name, now, versions[i])
		}
	}
}
