package publish_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// claimed is the version that an API server reports.
type claimed struct{ atomic.Pointer[string] }

func (c *claimed) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: *c.Load()}, nil
}

func TestA61_AControlPlaneThatGoesUpAMinorTakesItsNodesAlong(t *testing.T) {
	t.Parallel()
	p := startPlane(t, true)
	minors := severalMinors()
	server := &claimed{}
	p.payload, p.version = &minors, server
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	p.create(t, config)
	looks := 0
	// becomes changes the version that the API server reports. Then it changes a drain timeout, which is not part of a
	// revision, to trigger the operator.
	becomes := func(version string) {
		server.Store(&version)
		looks++
		before := config.DeepCopy()
		config.Spec.Rollout.DrainTimeout = &metav1.Duration{Duration: time.Duration(looks) * time.Minute}
		if err := p.admin.Patch(t.Context(), config, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	becomes("v1.36.3")
	p.run(t, time.Hour)

	first := p.current(t, "")
	if first.KubeletVersion != "v1.36.3" {
		t.Errorf("kubelet has version %s", first.KubeletVersion)
	}
	becomes("v1.37.0")
	second := p.current(t, first.Revision)
	if second.KubeletVersion != "v1.37.2" || p.manifest(t.Context(), t, second.ConfigMapName()) == nil {
		t.Errorf("kubelet has version %s, or the revision is not published", second.KubeletVersion)
	}
	for i, f := range second.Manifest.Files {
		old := first.Manifest.Files[i]
		if ofKubernetes := f.Path == contract.PathKubelet; old.Path != f.Path || (old.Digest != f.Digest) != ofKubernetes {
			t.Errorf("the digest of %s changed from %.8s to %.8s", f.Path, old.Digest, f.Digest)
		}
	}

	for _, none := range []struct{ server, fits string }{{"v1.33.9", "1.30 to 1.33"}, {"v1.45.0", "1.42 to 1.45"}} {
		becomes(none.server)
		eventually(t, "waiting for the problem about "+none.server, func(context.Context) (bool, error) {
			problems := p.source.Problems()
			return len(problems) == 1 && problems[0].Reason == contract.ReasonVersionUnsupported &&
				strings.Contains(problems[0].Detail, none.server+", which kubelet "+none.fits+" fits") &&
				strings.Contains(problems[0].Detail, "v1.37.2") && strings.Contains(problems[0].Detail, "v1.35.4"), nil
		})
		if p.manifest(t.Context(), t, second.ConfigMapName()) == nil {
			t.Error("the revision that nodes use was deleted")
		}
	}
	becomes("v1.36.4")
	if again := p.current(t, second.Revision); again.Revision != first.Revision {
		t.Errorf("the same content has the revisions %s and %s", again.Revision, first.Revision)
	}
}

// severalMinors returns a payload with kubelets of three minor versions.
func severalMinors() payload.Manifest {
	m := standIn()
	for i, version := range []string{"v1.37.2", "v1.35.4"} {
		kubelet := m.Files[0]
		kubelet.Version, kubelet.Digest = version, strings.Repeat(string("12"[i]), 64)
		m.Files = append(m.Files, kubelet)
	}
	return m
}
