package publish

import (
	"bytes"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payloadimage"
	"github.com/windows-nodes/wmco/lab/registry"
)

// images answers as it is told, and notes what it is asked.
type images struct {
	dir     *payload.Dir
	problem *contract.Problem
	wanted  string
	access  payloadimage.Access
}

func (i *images) Want(image string, access payloadimage.Access) (*payload.Dir, *contract.Problem) {
	i.wanted, i.access = image, access
	return i.dir, i.problem
}

func (i *images) Changed() <-chan event.GenericEvent { return nil }

func standins(t *testing.T, version string) *payload.Dir {
	t.Helper()
	dir := t.TempDir()
	if _, err := payload.WriteStandins(dir, version); err != nil {
		t.Fatal(err)
	}
	d, err := payload.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestA61_ThePayloadsImageIsPulledAsTheClustersSettingsSayAndItsRevisionIsPublished(t *testing.T) {
	t.Parallel()
	const wanted = "registry.example.com/payload@sha256:aa"
	w := newWorld(t, &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject},
		Spec: v1alpha1.WindowsMachineConfigSpec{Payload: v1alpha1.PayloadSpec{Image: wanted}}})
	w.pulls(pullSecret)
	w.facts.answer(func(s *factsStub) {
		s.facts.Mirrors = []mirror.Set{{Source: "registry.example.com", Mirrors: []string{"m.example"},
			Kind: contract.PullByDigest}}
		s.facts.Proxy.HTTPS = "http://proxy.example:3128"
	})
	pulling := contract.NewProblem(contract.ReasonPayloadImageNotPulled, "it is being pulled")
	store := &images{problem: pulling}
	w.publisher.Images = store

	w.publish(t)
	if problems := w.publisher.source.Problems(); len(problems) != 1 || *problems[0] != *pulling || len(w.manifests(t)) > 0 {
		t.Errorf("without any payload the problems are %v", problems)
	}
	if store.wanted != wanted {
		t.Errorf("wanted is %q", store.wanted)
	}
	sources := store.access.Rules.Sources(mirror.Reference{Host: "registry.example.com", Repository: "payload",
		Kind: contract.PullByDigest})
	if _, ok := store.access.Secret.For("m.example", "payload"); !ok || len(sources) != 2 || sources[0].Host != "m.example" {
		t.Errorf("it is pulled from %v, with credentials: %v", sources, ok)
	}

	store.dir, store.problem = standins(t, "v1.35.4"), nil
	w.publish(t)
	first := w.current(t)
	if first.KubeletVersion != "v1.35.4" || len(first.Rejected) > 0 {
		t.Errorf("kubelet is %s, rejected %v", first.KubeletVersion, first.Rejected)
	}
	store.problem = contract.NewProblem(contract.ReasonPayloadImageNotPulled, "the registry is down")
	w.publish(t)
	if now := w.current(t); now.Revision != first.Revision || len(now.Rejected) != 1 ||
		*now.Rejected[0] != *store.problem {
		t.Errorf("the payload before does not stay, or nobody is told why: %s, %v", now.Revision, now.Rejected)
	}
	store.dir, store.problem = standins(t, "v1.36.3"), nil
	w.publish(t)
	if now := w.current(t); now.Revision == first.Revision || now.KubeletVersion != "v1.36.3" || len(now.Rejected) > 0 {
		t.Errorf("the new payload is not in force: kubelet %s", now.KubeletVersion)
	}
}

// An operator whose disk is lost pulls with the values that nodes keep while the cluster's can't be used.
func TestA61_ThePullTakesTheValuesThatNodesKeep(t *testing.T) {
	t.Parallel()
	ca := registry.NewCA(t, "registries").PEM
	good := func(s *factsStub) {
		s.facts.PullSecret, s.facts.Proxy.HTTPS = []byte(pullSecret), "http://proxy.example:3128"
		s.facts.Trust = []blueprint.Bundle{{Source: "additionalCA", PEM: ca}}
		s.facts.RegistryTrust = map[string]blueprint.Bundle{}
	}
	for name, spoil := range map[string]func(s *factsStub){
		"nothing":                 func(*factsStub) {},
		"the pull secret":         func(s *factsStub) { s.facts.PullSecret = []byte("junk") },
		"the proxy":               func(s *factsStub) { s.facts.Proxy.HTTPS = "ftp://proxy.example" },
		"a bundle, which is gone": func(s *factsStub) { s.facts.Trust = []blueprint.Bundle{{Pending: true}} },
		"a bundle, which is junk": func(s *factsStub) { s.facts.Trust = []blueprint.Bundle{{PEM: []byte("junk")}} },
		"a bundle, now of one registry": func(s *factsStub) {
			s.facts.RegistryTrust["m.example"], s.facts.Trust = s.facts.Trust[0], nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}})
			w.facts.answer(good)
			store := &images{dir: standins(t, "v1.36.3")}
			w.publisher.Images = store
			w.publish(t)
			w.facts.answer(spoil)
			w.publisher.source = &Source{} // of another process
			store.dir, store.problem = nil, contract.NewProblem(contract.ReasonPayloadImageNotPulled, "it is being pulled")
			w.publish(t)
			if _, ok := store.access.Secret.For("m.example", "payload"); !ok {
				t.Error("it is pulled without credentials")
			}
			if !bytes.Contains(store.access.CA, bytes.TrimSpace(ca)) {
				t.Errorf("it is pulled with the CAs %q", store.access.CA)
			}
			proxy, err := store.access.Proxy(&url.URL{Scheme: "https", Host: "m.example"})
			if err != nil || proxy == nil || proxy.Host != "proxy.example:3128" {
				t.Errorf("it is pulled through the proxy %v, %v", proxy, err)
			}
		})
	}
}
