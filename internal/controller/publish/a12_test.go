package publish_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	labcluster "github.com/windows-nodes/wmco/lab/cluster"
)

// The steps share one API server, because starting one takes longer than all steps.
func TestA12_TheServicesManifestIsPublishedKeptAndRetired(t *testing.T) {
	t.Parallel()
	p := startPlane(t, true)
	p.run(t, time.Second)
	desired := p.current(t, "")

	t.Run("it exists, parses and is immutable", func(t *testing.T) { itExists(t, p, desired) })
	t.Run("it is restored after a deletion", func(t *testing.T) {
		before := p.manifest(t.Context(), t, desired.ConfigMapName())
		if err := p.admin.Delete(t.Context(), before.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		p.restored(t, desired, before)
	})
	t.Run("a foreign one is replaced", func(t *testing.T) { aForeignOneIsReplaced(t, p, desired) })
	t.Run("its Secret is restored when it is deleted or foreign",
		func(t *testing.T) { theSecretIsRestored(t, p, desired) })
	t.Run("daemons may read it and nothing else", func(t *testing.T) { daemonsMayReadIt(t, p, desired) })
	t.Run("a status update does nothing", func(t *testing.T) { aStatusUpdateDoesNothing(t, p) })
	t.Run("an old revision is deleted when no node uses it", func(t *testing.T) { aStaleOneIsRemoved(t, p, desired) })
	t.Run("the rights are sufficient", func(t *testing.T) {
		for _, r := range p.requests(t, func(r labcluster.Request) bool { return r.Code == 403 }) {
			t.Errorf("refused: %s %s", r.Verb, r.URI)
		}
	})
}

func itExists(t *testing.T, p *plane, desired blueprint.Desired) {
	t.Helper()
	c := p.manifest(t.Context(), t, desired.ConfigMapName())
	if c == nil {
		t.Fatal("the ConfigMap does not exist")
	}
	m, err := contract.ManifestFromConfigMap(c.Data)
	if err != nil || m.Digest() != desired.Manifest.Digest() {
		t.Errorf("the ConfigMap decodes to %s, %v", m.Digest(), err)
	}
	c.Data = maps.Clone(c.Data)
	c.Data["services"] = "[]"
	if err = p.admin.Update(t.Context(), c); !apierrors.IsInvalid(err) {
		t.Errorf("a change returns %v", err)
	}
}

// aForeignOneIsReplaced creates an object with the name of a revision and other content. The operator may restore the
// revision faster than the test creates this object, so the test may need several tries.
func aForeignOneIsReplaced(t *testing.T, p *plane, desired blueprint.Desired) {
	t.Helper()
	yes := true
	for name, foreign := range map[string]corev1.ConfigMap{
		"valid and immutable": {Immutable: &yes, Data: map[string]string{"services": "[]", "files": "[]"}},
		"invalid and mutable": {Data: map[string]string{"services": "rubbish"}},
	} {
		t.Run(name, func(t *testing.T) {
			made := foreign.DeepCopy()
			eventually(t, "making a foreign one", func(ctx context.Context) (bool, error) {
				made = foreign.DeepCopy()
				made.Namespace, made.Name = contract.OperatorNamespace, desired.ConfigMapName()
				if err := p.admin.Delete(ctx, made.DeepCopy()); client.IgnoreNotFound(err) != nil {
					return false, err
				}
				err := p.admin.Create(ctx, made)
				if apierrors.IsAlreadyExists(err) {
					return false, nil
				}
				return err == nil, err
			})
			eventually(t, "waiting for the deletion of the foreign one", func(ctx context.Context) (bool, error) {
				c := p.manifest(ctx, t, desired.ConfigMapName())
				if c == nil {
					return false, nil
				}
				m, err := contract.ManifestFromConfigMap(c.Data)
				return err == nil && m.Digest() == desired.Manifest.Digest() && c.Immutable != nil && *c.Immutable, nil
			})
		})
	}
}

func theSecretIsRestored(t *testing.T, p *plane, desired blueprint.Desired) {
	t.Helper()
	key := client.ObjectKey{Namespace: contract.OperatorNamespace, Name: desired.SecretName()}
	for name, foreign := range map[string]map[string][]byte{"deleted": nil,
		"foreign": {"confidential": []byte("junk")}} {
		before := &corev1.Secret{}
		if err := p.admin.Get(t.Context(), key, before); err != nil {
			t.Fatal(err)
		}
		if foreign == nil {
			if err := p.admin.Delete(t.Context(), before.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		} else {
			eventually(t, "making a foreign Secret", func(ctx context.Context) (bool, error) {
				made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
					Data: foreign, Immutable: new(true)}
				if err := p.admin.Delete(ctx, made.DeepCopy()); client.IgnoreNotFound(err) != nil {
					return false, err
				}
				err := p.admin.Create(ctx, made)
				if apierrors.IsAlreadyExists(err) {
					return false, nil
				}
				return err == nil, err
			})
		}
		eventually(t, "waiting for the Secret to be restored after it was "+name,
			func(ctx context.Context) (bool, error) {
				now := &corev1.Secret{}
				if err := p.admin.Get(ctx, key, now); err != nil {
					return false, client.IgnoreNotFound(err)
				}
				_, bad := contract.ParseConfidential(now.Data[contract.ConfidentialField], desired.Manifest)
				return bad == nil && now.UID != before.UID && now.Immutable != nil &&
					*now.Immutable, nil
			})
	}
	if again := p.current(t, ""); again.Revision != desired.Revision {
		t.Errorf("the revision changed to %s", again.Revision)
	}
}

func daemonsMayReadIt(t *testing.T, p *plane, desired blueprint.Desired) {
	t.Helper()
	daemon := p.daemon(t)
	read := func(name string) error {
		return daemon.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(contract.OperatorNamespace),
			client.MatchingFields{metav1.ObjectNameField: name})
	}
	if err := read(desired.ConfigMapName()); err != nil {
		t.Errorf("reading the ConfigMap: %v", err)
	}
	_, watching := daemon.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(contract.OperatorNamespace),
		client.MatchingFields{metav1.ObjectNameField: desired.ConfigMapName()})
	inside := func(name string) error {
		return daemon.List(t.Context(), &corev1.SecretList{}, client.InNamespace(contract.OperatorNamespace),
			client.MatchingFields{metav1.ObjectNameField: name})
	}
	if err := inside(desired.SecretName()); err != nil {
		t.Errorf("reading the Secret: %v", err)
	}
	p.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name: contract.PrivateKeySecret}})
	for what, attempt := range map[string]error{
		"a watch of it":   watching,
		"the private key": inside(contract.PrivateKeySecret),
		"another version": inside("windows-services-0.0.1-0123456789"),
		"all Secrets": daemon.List(t.Context(), &corev1.SecretList{},
			client.InNamespace(contract.OperatorNamespace)),
		"the cluster's secrets": daemon.List(t.Context(), &corev1.SecretList{}),
		"the Secret outside of a list": daemon.Get(t.Context(),
			client.ObjectKey{Namespace: contract.OperatorNamespace, Name: desired.SecretName()}, &corev1.Secret{}),
		"a wider role": daemon.Get(t.Context(),
			client.ObjectKey{Namespace: contract.OperatorNamespace, Name: contract.ServicesReaderRole}, &rbacv1.Role{}),
	} {
		if !apierrors.IsForbidden(attempt) {
			t.Errorf("%s: %v", what, attempt)
		}
	}
	p.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name: contract.InstancesConfigMap}})
	if err := read(contract.InstancesConfigMap); !apierrors.IsForbidden(err) {
		t.Errorf("reading another ConfigMap: %v", err)
	}
	if err := daemon.List(t.Context(), &corev1.ConfigMapList{},
		client.InNamespace(contract.OperatorNamespace)); !apierrors.IsForbidden(err) {
		t.Errorf("listing all ConfigMaps: %v", err)
	}
}

// restingPolls is how many polls in a row must find no new request: they take about half a second.
const restingPolls = 25

// aStatusUpdateDoesNothing makes some irrelevant changes, and then a relevant one. The operator must read the facts
// only after the relevant change. Each time the operator reads the facts, it reads the bootstrap Secret.
func aStatusUpdateDoesNothing(t *testing.T, p *plane) {
	t.Helper()
	looks := func() int {
		return len(p.requests(t, func(r labcluster.Request) bool { return r.Resource == "secrets" && r.Verb == "get" }))
	}
	before, still := -1, 0
	eventually(t, "waiting for the operator to come to rest", func(context.Context) (bool, error) {
		now := looks()
		if still++; now != before {
			before, still = now, 0
		}
		return still == restingPolls, nil
	})
	for range 5 {
		config := &machineconfigurationv1.ControllerConfig{}
		if err := p.admin.Get(t.Context(), client.ObjectKey{Name: "machine-config-controller"}, config); err != nil {
			t.Fatal(err)
		}
		config.Status.ObservedGeneration++
		if err := p.admin.Status().Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	version := p.current(t, "").Revision
	network := &operatorv1.Network{}
	if err := p.admin.Get(t.Context(), client.ObjectKey{Name: "cluster"}, network); err != nil {
		t.Fatal(err)
	}
	network.Spec.DefaultNetwork.OVNKubernetesConfig.HybridOverlayConfig = nil
	if err := p.admin.Update(t.Context(), network); err != nil {
		t.Fatal(err)
	}
	eventually(t, "waiting for the problem", func(context.Context) (bool, error) {
		problems := p.source.Problems()
		return len(problems) == 1 && problems[0].Reason == contract.ReasonNetworkUnsupported, nil
	})
	if now := looks(); now != before+1 {
		t.Errorf("the operator read the facts %d times after five status updates and one change", now-before)
	}
	network.Spec.DefaultNetwork.OVNKubernetesConfig.HybridOverlayConfig = &operatorv1.HybridOverlayConfig{
		HybridClusterNetwork: []operatorv1.ClusterNetworkEntry{{CIDR: "10.132.0.0/14", HostPrefix: 23}},
	}
	if err := p.admin.Update(t.Context(), network); err != nil {
		t.Fatal(err)
	}
	if again := p.current(t, ""); again.Revision != version {
		t.Errorf("the revision changed from %s to %s", version, again.Revision)
	}
}

func aStaleOneIsRemoved(t *testing.T, p *plane, first blueprint.Desired) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-1", Annotations: map[string]string{
		contract.RevisionAnnotation: first.Revision, contract.DesiredRevisionAnnotation: first.Revision,
	}}}
	p.create(t, node)
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Logging.Debug = true
	p.create(t, config)
	second := p.current(t, first.Revision)
	reads := func(wanted ...string) func(ctx context.Context) (bool, error) {
		slices.Sort(wanted)
		return func(ctx context.Context) (bool, error) {
			role := &rbacv1.Role{}
			if err := p.admin.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace,
				Name: contract.ServicesReaderRole}, role); err != nil {
				return false, err
			}
			return slices.Equal(role.Rules[0].ResourceNames, wanted), nil
		}
	}
	gone := func(desired blueprint.Desired) {
		eventually(t, "waiting for "+desired.Revision+" to go", func(ctx context.Context) (bool, error) {
			return p.manifest(ctx, t, desired.ConfigMapName()) == nil, nil
		})
	}
	eventually(t, "waiting for both to be readable", reads(first.ConfigMapName(), second.ConfigMapName()))

	// The first revision becomes current again. No node uses the second revision, so it is deleted.
	config.Spec.Logging.Debug = false
	if err := p.admin.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if again := p.current(t, second.Revision); again.Revision != first.Revision {
		t.Errorf("the same content has the revisions %s and %s", first.Revision, again.Revision)
	}
	gone(second)
	eventually(t, "waiting for the role to follow", reads(first.ConfigMapName()))

	// The second revision becomes current again. Only the node uses the first revision, so the first revision must be
	// kept until the node has left it, no matter how long ago it was current.
	config.Spec.Logging.Debug = true
	if err := p.admin.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	p.current(t, first.Revision)
	eventually(t, "waiting for both to be readable", reads(first.ConfigMapName(), second.ConfigMapName()))
	data := map[string]string{"services": "[]", "files": "[]"}
	bystander := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name:   contract.ServicesConfigMapPrefix + "1.0.0-" + contract.DataDigest(data)[:contract.RevisionDigits],
		Labels: map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount}}, Data: data}
	p.create(t, bystander)
	eventually(t, "waiting for the deletion of an unused one, which shows that the grace period is over",
		func(ctx context.Context) (bool, error) {
			return p.manifest(ctx, t, bystander.Name) == nil, nil
		})
	if p.manifest(t.Context(), t, first.ConfigMapName()) == nil {
		t.Fatal("the revision that the node uses was deleted")
	}
	moved := node.DeepCopy()
	moved.Annotations = map[string]string{contract.RevisionAnnotation: second.Revision,
		contract.DesiredRevisionAnnotation: second.Revision}
	if err := p.admin.Patch(t.Context(), moved, client.MergeFrom(node)); err != nil {
		t.Fatal(err)
	}
	gone(first)
	eventually(t, "waiting for the role to follow", reads(second.ConfigMapName()))
}
