package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/test/clustertest"
)

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func within(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// dayTwo returns all objects that an administrator may change on day 2.
func dayTwo() []client.Object {
	return []client.Object{
		&configv1.Proxy{
			ObjectMeta: named("cluster"),
			Spec: configv1.ProxySpec{HTTPProxy: "http://wished",
				TrustedCA: configv1.ConfigMapNameReference{Name: "user-ca"}},
			Status: configv1.ProxyStatus{HTTPProxy: "http://me:pw@proxy:3128", HTTPSProxy: "http://proxy:3128",
				NoProxy: ".svc,10.0.0.0/8"},
		},
		&configv1.Image{ObjectMeta: named("cluster"), Spec: configv1.ImageSpec{
			AdditionalTrustedCA: configv1.ConfigMapNameReference{Name: "registry-cas"},
			RegistrySources: configv1.RegistrySources{
				AllowedRegistries: []string{"quay.io"}, InsecureRegistries: []string{"m.example:5000"},
				ContainerRuntimeSearchRegistries: []string{"quay.io"},
			},
		}},
		&configv1.ImageDigestMirrorSet{ObjectMeta: named("b"),
			Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{
				{Source: "quay.io/b", Mirrors: []configv1.ImageMirror{"z.example/b", "a.example/b"},
					MirrorSourcePolicy: configv1.NeverContactSource},
			}}},
		&configv1.ImageDigestMirrorSet{ObjectMeta: named("a"),
			Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{
				{Source: "quay.io/2"}, {Source: "quay.io/1"},
			}}},
		&operatorv1alpha1.ImageContentSourcePolicy{ObjectMeta: named("p"),
			Spec: operatorv1alpha1.ImageContentSourcePolicySpec{
				RepositoryDigestMirrors: []operatorv1alpha1.RepositoryDigestMirrors{
					{Source: "quay.io/p", Mirrors: []string{"z.example/p", "a.example/p"}},
				}}},
		&configv1.ImageTagMirrorSet{ObjectMeta: named("t"),
			Spec: configv1.ImageTagMirrorSetSpec{ImageTagMirrors: []configv1.ImageTagMirrors{
				{Source: "*.example", Mirrors: []configv1.ImageMirror{"m.example"}},
			}}},
		&corev1.ConfigMap{ObjectMeta: within(contract.OperatorNamespace, contract.TrustedCAConfigMap),
			Data: map[string]string{contract.CABundleField: "injected"}},
		&corev1.ConfigMap{ObjectMeta: within(contract.ConfigNamespace, "user-ca"),
			Data: map[string]string{contract.CABundleField: "user", "else": "no"}},
		&corev1.ConfigMap{ObjectMeta: within(contract.ConfigNamespace, "registry-cas"),
			Data: map[string]string{"M.example..5000": "m", "plain.example": "p"}},
		&corev1.ConfigMap{ObjectMeta: within(contract.OperatorNamespace, "more"),
			Data: map[string]string{"b": "2", "a": "1"}, BinaryData: map[string][]byte{"c": []byte("3")}},
		&corev1.Secret{ObjectMeta: within(contract.ConfigNamespace, contract.PullSecret),
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")}},
	}
}

// read reads the facts of a valid cluster with additional objects. change may change an object, or omit the object by
// returning false.
func read(t *testing.T, more []client.Object, change func(client.Object) bool) blueprint.Facts {
	t.Helper()
	all := slices.Concat(objects(t, clustertest.Options{}), more)
	spec := v1alpha1.WindowsMachineConfigSpec{Trust: v1alpha1.TrustSpec{AdditionalCA: "more"}}
	facts, err := reader(t, all, interceptor.Funcs{}, change).Facts(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// sources returns the bundles as "text of source", or "pending".
func sources(bundles []blueprint.Bundle) (all []string) {
	for _, b := range bundles {
		if b.Pending {
			all = append(all, "pending "+b.Source)
			continue
		}
		all = append(all, string(b.PEM)+" of "+b.Source)
	}
	return all
}

func TestWhatAnAdministratorSetsIsRead(t *testing.T) {
	t.Parallel()
	facts := read(t, dayTwo(), nil)
	if want := (blueprint.Proxy{HTTP: "http://me:pw@proxy:3128", HTTPS: "http://proxy:3128",
		None: ".svc,10.0.0.0/8"}); facts.Proxy != want || !facts.InjectsCA {
		t.Errorf("the proxy is %+v", facts.Proxy)
	}
	if !facts.Trust[0].Injected || facts.Trust[1].Injected {
		t.Error("the cluster's own exceptions can't be told from the administrator's settings")
	}
	if diff := cmp.Diff([]string{
		"injected of the ConfigMap trusted-ca", "user of the ConfigMap openshift-config/user-ca, key ca-bundle.crt",
		"1 of the ConfigMap more, key a", "2 of the ConfigMap more, key b", "3 of the ConfigMap more, key c",
	}, sources(facts.Trust)); diff != "" {
		t.Errorf("trust: %s", diff)
	}
	if r := facts.RegistryTrust; len(r) != 2 || string(r["m.example:5000"].PEM) != "m" ||
		string(r["plain.example"].PEM) != "p" {
		t.Errorf("registry trust: %v", r)
	}
	if diff := cmp.Diff([]mirror.Set{
		{Object: "ImageDigestMirrorSet/a", Kind: contract.PullByDigest, Source: "quay.io/2", Mirrors: []string{}},
		{Object: "ImageDigestMirrorSet/a", Kind: contract.PullByDigest, Source: "quay.io/1", Mirrors: []string{}},
		{Object: "ImageDigestMirrorSet/b", Kind: contract.PullByDigest, Source: "quay.io/b",
			Mirrors: []string{"z.example/b", "a.example/b"}, Policy: mirror.NeverContactSource},
		{Object: "ImageContentSourcePolicy/p", Kind: contract.PullByDigest, Source: "quay.io/p",
			Mirrors: []string{"z.example/p", "a.example/p"}},
		{Object: "ImageTagMirrorSet/t", Kind: contract.PullByTag, Source: "*.example", Mirrors: []string{"m.example"}},
	}, facts.Mirrors); diff != "" {
		t.Errorf("mirrors: %s", diff)
	}
	if diff := cmp.Diff(contract.RegistrySources{Restricted: true, Allowed: []string{"quay.io"},
		Insecure: []string{"m.example:5000"}}, facts.Registries); diff != "" {
		t.Errorf("registries: %s", diff)
	}
	if string(facts.PullSecret) != "{}" {
		t.Errorf("pull secret %q", facts.PullSecret)
	}
	if len(facts.Rejected) > 0 {
		t.Errorf("rejected: %v", facts.Rejected)
	}
}

func TestWhatIsNamedAndNotThereIsSaid(t *testing.T) {
	t.Parallel()
	gone := func(name string) func(client.Object) bool {
		return func(o client.Object) bool { return o.GetName() != name }
	}
	holding := func(name string, data map[string]string) func(client.Object) bool {
		return edit(func(o *corev1.ConfigMap) {
			if o.Name == name {
				o.Data, o.BinaryData = data, nil
			}
		})
	}
	for name, test := range map[string]struct {
		change   func(client.Object) bool
		rejected string // the text of the rejection, or empty
		pending  string // the source that is missing, or empty
	}{
		"the user's bundle": {gone("user-ca"), "spec.trustedCA names the ConfigMap " +
			"openshift-config/user-ca, which does not exist", "openshift-config/user-ca"},
		"the user's bundle is empty": {edit(func(o *corev1.ConfigMap) { delete(o.Data, contract.CABundleField) }),
			"has nothing under ca-bundle.crt", "user-ca"},
		"registries' CAs": {gone("registry-cas"), "spec.additionalTrustedCA names the ConfigMap " +
			"openshift-config/registry-cas", "registry-cas"},
		"additional CAs":      {gone("more"), "spec.trust.additionalCA of the WindowsMachineConfig names", "more"},
		"the injected bundle": {gone(contract.TrustedCAConfigMap), "", contract.TrustedCAConfigMap},
		"additional CAs without a key": {holding("more", nil),
			"spec.trust.additionalCA of the WindowsMachineConfig names the ConfigMap " + contract.OperatorNamespace +
				"/more, which has no keys", "more"},
		"additional CAs of white space": {holding("more", map[string]string{"a": " \n"}),
			"the ConfigMap more has nothing under a", "more, key a"},
		"an injected bundle of white space": {holding(contract.TrustedCAConfigMap,
			map[string]string{contract.CABundleField: "\n"}), "", contract.TrustedCAConfigMap},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := read(t, dayTwo(), test.change)
			said := ""
			for _, p := range facts.Rejected {
				if p.Reason != contract.ReasonTrustSourceMissing {
					t.Errorf("reason %s", p.Reason)
				}
				said += p.Detail + "\n"
			}
			if !strings.Contains(said, test.rejected) || (test.rejected == "") != (said == "") {
				t.Errorf("the rejection is %q", said)
			}
			if !slices.ContainsFunc(facts.Trust,
				func(b blueprint.Bundle) bool { return b.Pending && strings.Contains(b.Source, test.pending) }) {
				t.Errorf("the trusted bundles are %v", sources(facts.Trust))
			}
		})
	}
}

func TestARegistrysCAOfWhiteSpaceWaits(t *testing.T) {
	t.Parallel()
	facts := read(t, dayTwo(), edit(func(o *corev1.ConfigMap) {
		if o.Name == "registry-cas" {
			o.Data["plain.example"] = " "
		}
	}))
	if r := facts.RegistryTrust; !r["plain.example"].Pending || r["m.example:5000"].Pending || len(facts.Rejected) != 1 ||
		!strings.Contains(facts.Rejected[0].Detail, "openshift-config/registry-cas has nothing under plain.example") {
		t.Errorf("registry trust %v, rejected %v", r, facts.Rejected)
	}
}

func TestAClusterWithoutAnyOfItHasFacts(t *testing.T) {
	t.Parallel()
	lacking := func(object any) error {
		switch object.(type) {
		case *configv1.Proxy, *configv1.Image, *configv1.ImageDigestMirrorSetList, *configv1.ImageTagMirrorSetList,
			*operatorv1alpha1.ImageContentSourcePolicyList:
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: fmt.Sprintf("%T", object)}}
		}
		return nil
	}
	funcs := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if err := lacking(o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := lacking(l); err != nil {
				return err
			}
			return c.List(ctx, l, opts...)
		},
	}
	for name, f := range map[string]interceptor.Funcs{"no objects": {}, "no kinds": funcs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts, err := reader(t, objects(t, clustertest.Options{}), f, nil).Facts(t.Context(),
				v1alpha1.WindowsMachineConfigSpec{})
			if err != nil {
				t.Fatal(err)
			}
			if facts.Proxy.HTTP != "http://proxy" || facts.InjectsCA ||
				len(facts.Trust)+len(facts.RegistryTrust)+len(facts.Mirrors)+len(facts.PullSecret)+
					len(facts.Rejected) > 0 {
				t.Errorf("facts are %+v", facts)
			}
		})
	}
}

func TestOnlyWhatFactsAreMadeFromIsContent(t *testing.T) {
	t.Parallel()
	quiet := func(o client.Object) {
		o.SetResourceVersion("7")
		o.SetAnnotations(map[string]string{"a": "b"})
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "somebody"}})
	}
	loud := map[string]func(client.Object) bool{
		"Proxy": edit(func(o *configv1.Proxy) { o.Status.NoProxy += ",more" }),
		"Image": edit(func(o *configv1.Image) { o.Spec.AdditionalTrustedCA.Name = "other" }),
		"ImageDigestMirrorSet": edit(
			func(o *configv1.ImageDigestMirrorSet) { o.Spec.ImageDigestMirrors[0].Source = "x" }),
		"ImageContentSourcePolicy": edit(
			func(o *operatorv1alpha1.ImageContentSourcePolicy) { o.Spec.RepositoryDigestMirrors[0].Source = "x" }),
		"ImageTagMirrorSet": edit(func(o *configv1.ImageTagMirrorSet) { o.Spec.ImageTagMirrors[0].Source = "x" }),
		"ConfigMap":         edit(func(o *corev1.ConfigMap) { o.Data["new"] = "x" }),
		"Secret": edit(func(o *corev1.Secret) {
			for key := range o.Data {
				o.Data[key] = []byte("new")
			}
		}),
	}
	inputs := cluster.Inputs(contract.OperatorNamespace)[5:]
	used := 0
	for _, object := range dayTwo() {
		for _, input := range inputs {
			of := input.Object
			if fmt.Sprintf("%T", of) != fmt.Sprintf("%T", object) || of.GetNamespace() != object.GetNamespace() ||
				of.GetName() != "" && of.GetName() != object.GetName() {
				continue
			}
			used++
			before := input.Content(object)
			quiet(object)
			if before == "" || input.Content(object) != before {
				t.Errorf("%T %s: an irrelevant change is treated as relevant", object, object.GetName())
			}
			kind := fmt.Sprintf("%T", object)
			loud[kind[strings.LastIndex(kind, ".")+1:]](object)
			if input.Content(object) == before {
				t.Errorf("%T %s: a relevant change is treated as irrelevant", object, object.GetName())
			}
		}
	}
	if used != len(dayTwo()) {
		t.Errorf("%d inputs for %d objects", used, len(dayTwo()))
	}
	// The operator's own records change with each slot that it assigns, and have no facts about the cluster.
	for _, name := range []string{"windows-services-1-0123456789", contract.InstancesConfigMap, contract.SlotsConfigMap,
		contract.ReplacementsConfigMap, contract.ReleasedConfigMap, contract.PayloadSourceConfigMap} {
		for _, input := range inputs {
			object := &corev1.ConfigMap{ObjectMeta: within(contract.OperatorNamespace, name)}
			if _, ok := input.Object.(*corev1.ConfigMap); ok &&
				input.Object.GetNamespace() == contract.OperatorNamespace && input.Content(object) != "" {
				t.Errorf("%s is an input", name)
			}
		}
	}
}
