package acceptance

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// settings returns the rows about settings that reach all nodes. A run changes only the WindowsMachineConfig.
// Therefore, these rows need a cluster where this object holds the settings.
func settings() map[string]trial {
	allowed := []Disruption{DisruptSettings}
	return map[string]trial{
		"A22": {stage: stageDisrupt, disrupts: allowed, try: mirrorReaches,
			shows: "that nodes report a mirror as applied, and then its removal"},
		"A25": {stage: stageDisrupt, disrupts: allowed, try: trustReaches,
			shows: "that nodes report a CA certificate as applied, and then its removal"},
		"A62": {stage: stageLeave, try: settingsWithoutOpenShift, shows: "mirrors and trust"},
	}
}

// settingsField is the key in a run's record that holds the previous value of a changed setting.
const settingsField = "settings"

// changed is one field of the WindowsMachineConfig's spec that a run set, with its previous value.
type changed struct {
	Field       string `json:"field"`
	Set, Before any
}

// mirrorReaches tests row A22: a mirror must reach the nodes, and must be removed again.
func mirrorReaches(ctx context.Context, r *run) error {
	return settingReaches(ctx, r, changed{Field: "mirrors", Set: map[string]any{"imageDigestMirrors": []any{
		map[string]any{"source": "wmco-e2e.invalid/nothing", "mirrors": []any{"mirror.wmco-e2e.invalid/nothing"}}}}})
}

// trustReaches tests row A25: a trusted CA must reach the nodes, and must be removed again.
func trustReaches(ctx context.Context, r *run) error {
	certificate, err := newCA()
	if err != nil {
		return err
	}
	bundle := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace,
		Name: managedBy + "-" + r.id + "-ca", Labels: r.labels()},
		Data: map[string]string{contract.CABundleField: certificate}}
	if err = r.client.Create(ctx, bundle); err != nil {
		return err
	}
	return settingReaches(ctx, r, changed{Field: "trust", Set: map[string]any{"additionalCA": bundle.Name}})
}

// newCA creates a CA certificate. The key is discarded.
func newCA() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), IsCA: true,
		Subject:   pkix.Name{CommonName: managedBy},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), err
}

// settingReaches changes a field, waits until the nodes have the new revision, and restores the field.
func settingReaches(ctx context.Context, r *run, c changed) error {
	if r.cluster.Kind != "Kubernetes" {
		return cannot("on %s, the settings are in the cluster's own objects, which a run does not change",
			r.cluster.Kind)
	}
	if len(r.nodes) == 0 {
		return cannot("no host joined")
	}
	before, err := r.config(ctx)
	if err != nil {
		return err
	}
	if err = setField(ctx, r, c); err != nil {
		return err
	}
	followed := follow(ctx, r, before.Status.DesiredRevision)
	if _, err = restore(ctx, r, r.record()); err != nil {
		return errors.Join(followed, err)
	}
	if followed != nil {
		return followed
	}
	return r.await(ctx, r.JoinTimeout, "nodes following the restored setting",
		func(ctx context.Context) (bool, string, error) {
			return atRevision(ctx, r, before.Status.DesiredRevision)
		})
}

// setField stores the previous value in the run's record. Then it sets the field.
func setField(ctx context.Context, r *run, c changed) error {
	return editSettings(ctx, r, func(spec map[string]any) error {
		c.Before = spec[c.Field]
		if given, _ := c.Before.(map[string]any); len(given) > 0 {
			return cannot("spec.%s of the WindowsMachineConfig is already set, and the run does not replace it",
				c.Field)
		}
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"data": map[string]any{settingsField: string(text)}})
		if err != nil {
			return err
		}
		if err = r.client.Patch(ctx, r.record(), mergePatch(string(patch))); err != nil {
			return fmt.Errorf("storing the previous value of the setting: %w", err)
		}
		spec[c.Field] = c.Set
		return nil
	})
}

// restore restores the earlier value of a field from a run's record. If someone has changed the field since, restore
// keeps their value.
func restore(ctx context.Context, r *run, record *corev1.ConfigMap) (what string, err error) {
	if err = r.client.Get(ctx, client.ObjectKeyFromObject(record), record); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	text := record.Data[settingsField]
	if text == "" {
		return "", nil
	}
	var c changed
	if err = json.Unmarshal([]byte(text), &c); err != nil {
		return "", fmt.Errorf("reading the record %s: %w", record.Name, err)
	}
	err = editSettings(ctx, r, func(spec map[string]any) error {
		if !stillSet(spec[c.Field], c.Set) {
			return nil
		}
		if what = "the change of " + c.Field + " in the WindowsMachineConfig"; c.Before == nil {
			delete(spec, c.Field)
			return nil
		}
		spec[c.Field] = c.Before
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("restoring %s of the WindowsMachineConfig: %w", c.Field, err)
	}
	patch := fmt.Sprintf(`{"data":{%q:null}}`, settingsField)
	return what, client.IgnoreNotFound(r.client.Patch(ctx, record, mergePatch(patch)))
}

// stillSet reports whether a field still has the value that the run wrote. It ignores subfields that the API server has
// filled in.
func stillSet(now, set any) bool {
	is, _ := now.(map[string]any)
	had, _ := set.(map[string]any)
	return len(is) == len(had) && covers(now, set)
}

// covers reports whether a value contains everything that another value contains.
func covers(now, set any) bool {
	switch set := set.(type) {
	case map[string]any:
		is, ok := now.(map[string]any)
		for key, value := range set {
			ok = ok && covers(is[key], value)
		}
		return ok
	case []any:
		is, ok := now.([]any)
		ok = ok && len(is) == len(set)
		for i := range set {
			ok = ok && covers(is[i], set[i])
		}
		return ok
	}
	return reflect.DeepEqual(now, set)
}

// editSettings changes the spec of the WindowsMachineConfig. After a conflict with another writer, it reads the
// object again. It keeps fields that this program doesn't know.
func editSettings(ctx context.Context, r *run, change func(spec map[string]any) error) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("WindowsMachineConfig"))
		if err := r.client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, object); err != nil {
			return fmt.Errorf("reading the WindowsMachineConfig: %w", err)
		}
		spec, _, err := unstructured.NestedMap(object.Object, "spec")
		if err != nil {
			return err
		}
		if spec == nil {
			spec = map[string]any{}
		}
		if err = change(spec); err != nil {
			return err
		}
		if err = unstructured.SetNestedMap(object.Object, spec, "spec"); err != nil {
			return err
		}
		return r.client.Update(ctx, object)
	})
}

// follow waits until the operator publishes a new revision, and the nodes of this run have it.
func follow(ctx context.Context, r *run, before string) error {
	return r.await(ctx, r.JoinTimeout, "nodes following the setting",
		func(ctx context.Context) (bool, string, error) {
			config, err := r.config(ctx)
			if err != nil || config.Status.DesiredRevision == before {
				return false, "the operator has published no other revision", err
			}
			for _, rejected := range config.Status.RejectedSettings {
				return false, "", wrongf("the operator rejects the setting: %s %s", rejected.Code, rejected.Message)
			}
			return atRevision(ctx, r, config.Status.DesiredRevision)
		})
}

// atRevision reports whether the nodes of this run have a given revision.
func atRevision(ctx context.Context, r *run, revision string) (bool, string, error) {
	for _, mine := range r.nodes {
		n, err := r.node(ctx, mine.Name)
		if err != nil {
			return false, "", err
		}
		if got := n.Annotations[contract.RevisionAnnotation]; got != revision || !isReady(n) {
			return false, fmt.Sprintf("node %s is at %s, Ready: %t", n.Name, got, isReady(n)), nil
		}
	}
	r.note("%d nodes of this run reported revision %s", len(r.nodes), revision)
	return true, "", nil
}

// settingsWithoutOpenShift tests row A62: on a plain cluster, settings in the WindowsMachineConfig reach the nodes.
// Rows A22 and A25 show this.
func settingsWithoutOpenShift(_ context.Context, r *run) error {
	switch {
	case r.cluster.Kind != "Kubernetes":
		return cannot("the cluster is %s", r.cluster.Kind)
	case !r.shown["A22"] || !r.shown["A25"]:
		return cannot("this row needs settings that reach nodes (A22, A25)")
	}
	return nil
}
