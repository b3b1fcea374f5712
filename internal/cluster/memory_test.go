package cluster_test

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
	"github.com/windows-nodes/wmco/test/clustertest"
)

// target is an object or a list that facts are read from.
type target struct{ kind, name string }

// fault changes the result of a read, or makes the read fail. does gets the object or list that the server would
// return.
type fault struct {
	does func(o any) error
	// retried means that the operator retries after this fault, and that nothing changes until then.
	retried bool
}

// remembering is a cluster that records reads, and makes the reads of one target fail.
type remembering struct {
	client client.WithWatch
	reads  map[target]bool
	broken target
	fault  func(o any) error
}

func (r *remembering) read(o any, name string, read func() error) error {
	kind := reflect.TypeOf(o).Elem().String()
	if p, ok := o.(*metav1.PartialObjectMetadata); ok { // the metadata of a CRD
		if r.fault != nil {
			return apierrors.NewNotFound(schema.GroupResource{}, name)
		}
		p.CreationTimestamp = metav1.Unix(0, 0)
		return nil
	}
	err := read()
	if name == contract.MemorySecret {
		return err
	}
	at := target{kind, name}
	r.reads[at] = true
	if r.fault != nil && r.broken == at {
		return errors.Join(r.fault(o), err)
	}
	return err
}

func newRemembering(t *testing.T, all []client.Object) *remembering {
	t.Helper()
	r := &remembering{reads: map[target]bool{}}
	r.client = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			return r.read(o, key.Name, func() error { return c.Get(ctx, key, o, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
			return r.read(l, "", func() error { return c.List(ctx, l, options...) })
		},
	}).Build()
	return r
}

// remember writes a reader's facts into its Secret, as the publisher does.
func remember(t *testing.T, c client.Client, namespace string, source cluster.Source) {
	t.Helper()
	parts, err := source.Remember(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := cluster.Memory(&v1alpha1.WindowsMachineConfig{}, parts)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: within(namespace, contract.MemorySecret), Data: data}
	if err = client.IgnoreNotFound(c.Delete(t.Context(), secret.DeepCopy())); err == nil {
		err = c.Create(t.Context(), secret)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// garble makes the content of an object unreadable.
func garble(o any, text string) {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		for key := range o.Data {
			o.Data[key] = text
		}
	case *corev1.Secret:
		for key := range o.Data {
			o.Data[key] = []byte(text)
		}
	case *configv1.Infrastructure:
		o.Status = configv1.InfrastructureStatus{}
	case *configv1.Proxy: // the object was created again, and the cluster network operator has not filled it in yet
		o.Status = configv1.ProxyStatus{}
	case *machineconfigurationv1.ControllerConfig:
		o.Spec.KubeAPIServerServingCAData = []byte(text)
	case *machineconfigurationv1.MachineConfigPool:
		o.Status.Configuration.Name, o.Spec.Configuration.Name = "", ""
	case *machineconfigurationv1.MachineConfig:
		o.Spec.Config.Raw = []byte(text)
	case *networkingv1.ServiceCIDR:
		o.Spec.CIDRs = []string{text}
	case *corev1.ServiceList:
		for i := range o.Items {
			o.Items[i].Spec = corev1.ServiceSpec{}
		}
	}
}

// faults returns the faults that a target can have.
func faults(at target) map[string]fault {
	resource := schema.GroupResource{Resource: at.kind}
	fail := func(err error) func(any) error { return func(any) error { return err } }
	all := map[string]fault{
		"forbidden": {does: fail(apierrors.NewForbidden(resource, at.name, errors.New("no")))},
		"its kind is gone": {does: fail(&meta.NoKindMatchError{
			GroupKind: schema.GroupKind{Kind: at.kind}})},
		"a time-out":   {does: fail(apierrors.NewTimeoutError("etcdserver: request timed out", 1)), retried: true},
		"a wrong type": {does: fail(errors.New("json: cannot unmarshal number")), retried: true},
	}
	if at.name != "" {
		all["deleted"] = fault{does: fail(apierrors.NewNotFound(resource, at.name))}
	}
	if at.kind == "v1.ConfigMap" || at.kind == "v1.Secret" {
		all["the key is in binaryData"] = fault{does: func(o any) error {
			switch o := o.(type) {
			case *corev1.ConfigMap:
				o.BinaryData = map[string][]byte{}
				for key, text := range o.Data {
					o.BinaryData[key] = []byte(text)
				}
				o.Data = nil
			case *corev1.Secret:
				o.Data = nil
			}
			return nil
		}}
	}
	all["garbage"] = fault{does: func(o any) error { garble(o, "\x00garbage: ["); return nil }}
	return all
}

// nodesHave returns the facts that nodes get: if new certificates or credentials are missing, nodes keep the published
// certificates and credentials.
func nodesHave(t *testing.T, facts blueprint.Facts, shipped payload.Manifest, published blueprint.Desired) blueprint.Facts {
	t.Helper()
	desired, err := blueprint.Render(blueprint.Input{Facts: facts, Payload: shipped, OperatorVersion: "0.1.0",
		Salt: make([]byte, contract.SaltSize), Previous: published, Now: metav1.Now().Time})
	if err != nil {
		t.Error(err)
	}
	secret, public := desired.Confidential, desired.Manifest.EnvironmentVars
	facts.PullSecret, facts.RegistryTrust = secret.PullSecret, nil
	facts.Trust = []blueprint.Bundle{{PEM: []byte(strings.Join(secret.Trust, ""))}}
	facts.Proxy = blueprint.ProxyFromEnvironment(func(name string) (string, bool) {
		return cmp.Or(secret.Environment[name], public[name]), true
	})
	facts.Troubles, facts.Rejected = nil, nil
	return facts
}

func certificate(t *testing.T, name string) string {
	t.Helper()
	text, err := clustertest.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestA80_NoObjectThatIsAbsentOrUnreadableChangesTheFacts(t *testing.T) {
	t.Parallel()
	const credentials = `{"auths":{"m.example":{"auth":"bWU6aHVudGVyMg=="}}}`
	openShift := slices.Concat(objects(t, clustertest.Options{Platform: "AWS"}), dayTwo(), []client.Object{
		&networkingv1.ServiceCIDR{ObjectMeta: named("more"), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.77.0.0/16"}}}})
	plain := append(withFlannel(t, goodFlannel, "10.244.0.0/16"),
		&corev1.ConfigMap{ObjectMeta: within(elsewhere, "more"), Data: map[string]string{"a": ""}},
		&corev1.Secret{ObjectMeta: within(elsewhere, "creds"), Data: map[string][]byte{corev1.DockerConfigJsonKey: nil}})
	shipped, err := assembly.WriteStandins(t.TempDir(), "v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: within("default", "kubernetes"),
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}}}}
	openShift, plain = append(openShift, slice), append(plain, slice.DeepCopy())
	plainSpec := onFlannel()
	plainSpec.Trust.AdditionalCA, plainSpec.PullSecret = "more", "creds"
	for _, o := range slices.Concat(openShift, plain) {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			if slices.Contains([]string{contract.TrustedCAConfigMap, "user-ca", "registry-cas", "more"}, o.Name) {
				for key := range o.Data {
					o.Data[key] = certificate(t, o.Name+key)
				}
				o.BinaryData = nil
			}
		case *corev1.Secret:
			if _, is := o.Data[corev1.DockerConfigJsonKey]; is {
				o.Data[corev1.DockerConfigJsonKey] = []byte(credentials)
			}
		}
	}
	for name, test := range map[string]struct {
		objects   []client.Object
		spec      v1alpha1.WindowsMachineConfigSpec
		namespace string
		least     int
		start     func(o cluster.Options) (cluster.Source, error)
	}{
		"OpenShift": {openShift, v1alpha1.WindowsMachineConfigSpec{Trust: v1alpha1.TrustSpec{AdditionalCA: "more"}},
			contract.OperatorNamespace, 18, func(o cluster.Options) (cluster.Source, error) { return cluster.NewReader(o) }},
		"plain": {plain, plainSpec, elsewhere, 11,
			func(o cluster.Options) (cluster.Source, error) { return cluster.NewPlain(o) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := newRemembering(t, test.objects)
			start := func() cluster.Source {
				source, err := test.start(cluster.Options{Cached: world.client, Live: world.client, Version: server("v1.36.3"),
					Namespace: test.namespace, Access: access(t, everything), Proxy: blueprint.Proxy{HTTP: "http://operators.own"}})
				if err != nil {
					t.Fatal(err)
				}
				return source
			}
			first := start()
			before, err := first.Facts(t.Context(), test.spec)
			if err != nil || len(before.Troubles)+len(before.Rejected)+len(before.Lacks) > 0 {
				t.Fatalf("%v, %v, %v, %v", before.Troubles, before.Rejected, before.Lacks, err)
			}
			want := nodesHave(t, before, shipped, blueprint.Desired{})
			published := blueprint.Desired{Confidential: contract.Confidential{PullSecret: before.PullSecret,
				RegistryTrust: map[string]string{}}}
			for block, rest := pem.Decode(want.Trust[0].PEM); block != nil; block, rest = pem.Decode(rest) {
				published.Confidential.Trust = append(published.Confidential.Trust, string(pem.EncodeToMemory(block)))
			}
			for host, bundle := range before.RegistryTrust {
				published.Confidential.RegistryTrust[host] = string(bundle.PEM)
			}
			remember(t, world.client, test.namespace, first)
			if len(world.reads) < test.least {
				t.Fatalf("facts are read from only %d objects: %v", len(world.reads), world.reads)
			}
			for at := range world.reads {
				for what, fault := range faults(at) {
					running := start()
					if _, err = running.Facts(t.Context(), test.spec); err != nil {
						t.Fatal(err)
					}
					world.broken, world.fault = at, fault.does
					for when, source := range map[string]cluster.Source{"the same operator": running, "a restarted one": start()} {
						hint := fmt.Sprintf("%v: %s, %s", at, what, when)
						after, err := source.Facts(t.Context(), test.spec)
						if fault.retried {
							if err == nil || onlyProblems(err) {
								t.Errorf("%s: the read is not retried: %v", hint, err)
							}
							continue
						}
						if err != nil {
							t.Errorf("%s: %v", hint, err)
							continue
						}
						if have := nodesHave(t, after, shipped, published); !reflect.DeepEqual(have, want) {
							t.Errorf("%s: nodes have %+v\nwant %+v", hint, have, want)
						}
						expectNamed(t, hint, at, what, after)
					}
					world.fault = nil
					again, err := running.Facts(t.Context(), test.spec)
					if err != nil || !reflect.DeepEqual(again, before) {
						t.Errorf("%v: %s: after the repair, facts are %+v, %v", at, what, again, err)
					}
				}
			}
		})
	}
}

// expectNamed checks that a problem contains the object's name. For bad CAs and credentials, only rendering reports the
// problem.
func expectNamed(t *testing.T, hint string, at target, what string, facts blueprint.Facts) {
	t.Helper()
	names := []string{at.name}
	if at.name == "" {
		kind := strings.TrimSuffix(at.kind[strings.LastIndex(at.kind, ".")+1:], "List")
		names = []string{strings.TrimSuffix(kind, "y"), "k8s-app=kube-dns"}
	}
	for _, problem := range slices.Concat(facts.Troubles, facts.Rejected) {
		for _, name := range names {
			if strings.Contains(problem.Detail, name) {
				return
			}
		}
	}
	rendered := []string{contract.TrustedCAConfigMap, "user-ca", "registry-cas", "more", "creds", contract.PullSecret}
	garbled := []string{"v1.ConfigMap", "v1.Secret", "v1.Infrastructure", "v1.Proxy", "v1.ControllerConfig",
		"v1.MachineConfigPool", "v1.MachineConfig", "v1.ServiceCIDR", "v1.ServiceList"}
	unfounded := (what == "garbage" || what == "the key is in binaryData") &&
		(slices.Contains(rendered, at.name) || !slices.Contains(garbled, at.kind))
	if !unfounded {
		t.Errorf("%s: no problem names the object: %v, %v", hint, facts.Troubles, facts.Rejected)
	}
}

// A Secret may have 1 MiB. The settings come first, and facts that don't fit are omitted.
func TestA80_SettingsAndFactsThatAreRememberedFitIntoOneSecret(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(strings.Repeat("a", 700<<10))
	if err != nil {
		t.Fatal(err)
	}
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	config.Spec.Proxy.NoProxy = strings.Repeat("b", 400<<10)
	data, err := cluster.Memory(config, map[string]json.RawMessage{"large": text, "small": []byte(`"c"`)})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if size > 1<<20 || !strings.Contains(string(data["settings"]), "bbb") ||
		!strings.Contains(string(data["facts"]), `"small":"c"`) {
		t.Errorf("%d bytes: settings %.30s, facts %.30s", size, data["settings"], data["facts"])
	}
}
