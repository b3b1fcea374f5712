package reconcile_test

import (
	"encoding/base64"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
)

// hand publishes the latest revision as the operator does: a new Secret replaces the old one.
func (r *rig) hand(t *testing.T, latest contract.Latest) {
	t.Helper()
	data, err := latest.Data()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for key, value := range data {
		values[key] = base64.StdEncoding.EncodeToString(value)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": contract.LatestSecret, "namespace": namespace},
		"data":     values,
	}}
	_ = r.api.Tracker().Delete(secrets, namespace, contract.LatestSecret)
	if err = r.api.Tracker().Create(secrets, object, namespace); err != nil {
		t.Fatal(err)
	}
}

// latest returns a published revision in the format of the Secret that daemons watch.
func (r *rig) latest(t *testing.T, version string) contract.Latest {
	t.Helper()
	latest := contract.Latest{Revision: version}
	configMap, err := r.api.Tracker().Get(configMaps, namespace, contract.ServicesConfigMapPrefix+version)
	if err != nil {
		t.Fatal(err)
	}
	latest.Manifest, _, err = unstructured.NestedStringMap(configMap.(*unstructured.Unstructured).Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := r.api.Tracker().Get(secrets, namespace, contract.ServicesSecretPrefix+version)
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := unstructured.NestedString(secret.(*unstructured.Unstructured).Object, "data",
		contract.ConfidentialField)
	if err != nil {
		t.Fatal(err)
	}
	if latest.Confidential, err = base64.StdEncoding.DecodeString(text); err != nil {
		t.Fatal(err)
	}
	return latest
}

// requests returns the requests since the last reset, in order.
func (r *rig) requests() (all []string) {
	for _, action := range r.api.Actions() {
		all = append(all, action.GetVerb()+" "+action.GetResource().Resource)
	}
	return all
}

func TestA27_ARevisionThatWasHandedOutCostsNoRead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		two := r.publishBoth(t, another("two"), rules("a.example"))
		r.hand(t, r.latest(t, two))
		pass(10 * time.Second)
		r.expectStatus(t, one(), "") // the Node's annotation decides which revision the host must have
		r.api.ClearActions()
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(10 * time.Second)
		r.expectStatus(t, two, "")
		if all := r.requests(); len(all) != 1 || all[0] != "patch nodes" {
			t.Errorf("the daemon requested %v", all)
		}
	})
}

func TestA27_ARevisionThatTheNodeNamesFirstIsAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		two := r.publishBoth(t, another("two"), rules("a.example"))
		r.hand(t, r.latest(t, two))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(10 * time.Second)
		three := r.publishBoth(t, another("three"), rules("b.example"))
		r.api.ClearActions()
		r.annotate(t, contract.DesiredRevisionAnnotation, three)
		pass(time.Second)
		r.expectStatus(t, two, "")
		r.hand(t, r.latest(t, three))
		pass(5 * time.Second)
		r.expectStatus(t, three, "")
		if all := r.requests(); len(all) != 1 || all[0] != "patch nodes" {
			t.Errorf("the daemon requested %v", all)
		}
	})
}

func TestARevisionIsReadThatIsNotHandedOut(t *testing.T) {
	for name, spoil := range map[string]func(latest *contract.Latest){
		"another":             func(latest *contract.Latest) { latest.Revision = "0.1.0-0123456789" },
		"only its name":       func(latest *contract.Latest) { latest.Confidential = make([]byte, 1<<20) },
		"another manifest":    func(latest *contract.Latest) { latest.Manifest["files"] = "[]" },
		"junk for a manifest": func(latest *contract.Latest) { latest.Manifest = map[string]string{"x": "y"} },
		"junk for the rest":   func(latest *contract.Latest) { latest.Confidential = []byte("junk") },
		"nothing for the rest": func(latest *contract.Latest) {
			latest.Confidential = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				two := r.publishBoth(t, another("two"), rules("a.example"))
				latest := r.latest(t, two)
				spoil(&latest)
				r.hand(t, latest)
				r.annotate(t, contract.DesiredRevisionAnnotation, two)
				pass(10 * time.Second)
				r.expectStatus(t, two, "")
			})
		})
	}
}
