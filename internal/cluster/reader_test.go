package cluster_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/test/clustertest"
)

// server implements Versioner.
type server string

func (s server) ServerVersion() (*version.Info, error) {
	if s == "" {
		return nil, errors.New("connection refused")
	}
	return &version.Info{GitVersion: string(s)}, nil
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), cluster.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func objects(t *testing.T, o clustertest.Options) []client.Object {
	t.Helper()
	all, err := clustertest.Objects(o)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// access returns a client for access reviews. allows decides each review.
func access(t *testing.T, allows func(authorizationv1.SubjectAccessReviewSpec) bool,
) authorizationv1client.SubjectAccessReviewInterface {
	t.Helper()
	clients := kubernetesfake.NewClientset()
	clients.PrependReactor("create", "subjectaccessreviews",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			create, ok := action.(clienttesting.CreateAction)
			if !ok {
				return true, nil, errors.New("no review")
			}
			review, ok := create.GetObject().(*authorizationv1.SubjectAccessReview)
			if !ok {
				return true, nil, errors.New("no review")
			}
			review.Status.Allowed = allows(review.Spec)
			return true, review, nil
		})
	return clients.AuthorizationV1().SubjectAccessReviews()
}

func everything(authorizationv1.SubjectAccessReviewSpec) bool { return true }

// reader returns a reader of the objects in a fake client, after change was called with each of them. If change
// returns false, the object is omitted.
func reader(t *testing.T, all []client.Object, funcs interceptor.Funcs,
	change func(client.Object) bool) *cluster.Reader {
	t.Helper()
	if change != nil {
		all = slices.DeleteFunc(all, func(o client.Object) bool { return !change(o) })
	}
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).WithInterceptorFuncs(funcs).Build()
	r, err := cluster.NewReader(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"),
		Namespace: contract.OperatorNamespace, Access: access(t, everything),
		Proxy: blueprint.Proxy{HTTP: "http://proxy"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFactsOfAGoodClusterRenderOnEveryPlatform(t *testing.T) {
	t.Parallel()
	for _, platform := range []configv1.PlatformType{"None", "VSphere", "Nutanix", "AWS", "Azure", "GCP"} {
		t.Run(string(platform), func(t *testing.T) {
			t.Parallel()
			facts, err := reader(t, objects(t, clustertest.Options{Platform: platform, VXLANPort: 9898}),
				interceptor.Funcs{}, nil).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
			if err != nil {
				t.Fatal(err)
			}
			if facts.Platform != contract.Platform(strings.ToLower(string(platform))) ||
				facts.APIServer != "https://api-int.lab.example.com:6443" ||
				facts.ServiceNetwork.String() != "172.30.0.0/16" || facts.ClusterDNS().String() != "172.30.0.10" ||
				!facts.HybridOverlay ||
				facts.VXLANPort != 9898 || facts.KubernetesVersion != "v1.36.3" || facts.Proxy.HTTP != "http://proxy" {
				t.Errorf("the facts are %+v", facts)
			}
			if external := facts.CloudProvider == "external"; external == (platform == "None") {
				t.Errorf("the cloud provider is %q", facts.CloudProvider)
			}
			if (facts.CredentialProviders != nil) != (platform == "AWS") {
				t.Errorf("the credential providers are %+v", facts.CredentialProviders)
			}
			if !strings.HasPrefix(facts.KubeletCA, "-----BEGIN CERTIFICATE-----") ||
				facts.KubeletCA == facts.BootstrapCA {
				t.Error("the CAs are not the cluster's CAs")
			}
		})
	}
}

func TestWhatIsMissingOrWrongIsAProblemThatNamesTheObject(t *testing.T) {
	t.Parallel()
	gone := func(name string) func(client.Object) bool {
		return func(o client.Object) bool { return typeName(o) != name }
	}
	for name, test := range map[string]struct {
		change func(client.Object) bool
		reason contract.Reason
		names  string
	}{
		"no Infrastructure": {gone("config.Infrastructure"), contract.ReasonClusterFactsIncomplete,
			"Infrastructure cluster"},
		"no Network": {gone("config.Network"), contract.ReasonClusterFactsIncomplete,
			"Network cluster of config.openshift.io"},
		"no operator Network": {gone("operator.Network"), contract.ReasonClusterFactsIncomplete,
			"Network cluster of operator.openshift.io"},
		"no ControllerConfig": {gone("ControllerConfig"), contract.ReasonClusterFactsIncomplete,
			"ControllerConfig machine-config-controller"},
		"no pool": {gone("MachineConfigPool"), contract.ReasonClusterFactsIncomplete,
			"MachineConfigPool worker"},
		"no MachineConfig": {gone("MachineConfig"), contract.ReasonClusterFactsIncomplete, clustertest.RenderedWorker},
		"no Secret":        {gone("Secret"), contract.ReasonClusterFactsIncomplete, "node-bootstrapper-token"},
		"no platform": {edit(func(o *configv1.Infrastructure) { o.Status.PlatformStatus = nil }),
			contract.ReasonClusterFactsIncomplete, "platformStatus"},
		"an API server that is no URL": {
			edit(func(o *configv1.Infrastructure) { o.Status.APIServerInternalURL = "api;reboot" }),
			contract.ReasonClusterFactsIncomplete, "apiServerInternalURI"},
		"another network": {edit(func(o *configv1.Network) { o.Spec.NetworkType = "OpenShiftSDN" }),
			contract.ReasonNetworkUnsupported, "OpenShiftSDN"},
		"no service network": {edit(func(o *configv1.Network) {
			o.Spec.ServiceNetwork = []string{"x", "fd00::/112",
				"10.0.0.0/30"}
		}),
			contract.ReasonNetworkUnsupported, "serviceNetwork"},
		"no OVN-Kubernetes": {edit(func(o *operatorv1.Network) { o.Spec.DefaultNetwork.OVNKubernetesConfig = nil }),
			contract.ReasonNetworkUnsupported, "hybridOverlayConfig"},
		"an empty hybrid overlay": {edit(func(o *operatorv1.Network) {
			o.Spec.DefaultNetwork.OVNKubernetesConfig.HybridOverlayConfig.HybridClusterNetwork = nil
		}), contract.ReasonNetworkUnsupported, "hybridOverlayConfig"},
		"A43, a service network in class E": {edit(func(o *configv1.Network) {
			o.Spec.ServiceNetwork = []string{"240.1.0.0/16"}
		}), contract.ReasonNetworkUnsupported, "spec.serviceNetwork has 240.1.0.0/16"},
		"A43, a cluster network in class E": {edit(func(o *configv1.Network) {
			o.Spec.ClusterNetwork = []configv1.ClusterNetworkEntry{{CIDR: "10.128.0.0/14"}, {CIDR: "250.0.0.0/8"}}
		}), contract.ReasonNetworkUnsupported, "spec.clusterNetwork has 250.0.0.0/8"},
		"A43, a hybrid network in class E": {edit(func(o *operatorv1.Network) {
			o.Spec.DefaultNetwork.OVNKubernetesConfig.HybridOverlayConfig.HybridClusterNetwork[0].CIDR = "241.0.0.0/14"
		}), contract.ReasonNetworkUnsupported, "hybridClusterNetwork has 241.0.0.0/14"},
		"an invalid VXLAN port": {edit(func(o *operatorv1.Network) {
			port := uint32(70000)
			o.Spec.DefaultNetwork.OVNKubernetesConfig.HybridOverlayConfig.HybridOverlayVXLANPort = &port
		}), contract.ReasonNetworkUnsupported, "70000"},
		"an invalid kubelet CA": {edit(func(o *machineconfigurationv1.ControllerConfig) {
			o.Spec.KubeAPIServerServingCAData = []byte("rubbish")
		}),
			contract.ReasonClusterFactsIncomplete, "kubeAPIServerServingCAData"},
		"a pool without configuration": {edit(func(o *machineconfigurationv1.MachineConfigPool) {
			o.Status.Configuration.Name, o.Spec.Configuration.Name = "", ""
		}), contract.ReasonClusterFactsIncomplete, "MachineConfigPool worker"},
		"a MachineConfig that is not Ignition": {
			edit(func(o *machineconfigurationv1.MachineConfig) { o.Spec.Config.Raw = []byte(`{"storage":[]}`) }),
			contract.ReasonClusterFactsIncomplete, "Ignition"},
		"a MachineConfig without kubelet": {
			edit(func(o *machineconfigurationv1.MachineConfig) { o.Spec.Config.Raw = []byte(`{}`) }),
			contract.ReasonClusterFactsIncomplete, "kubelet.service"},
		"a Secret without CA": {edit(func(o *corev1.Secret) { delete(o.Data, "ca.crt") }),
			contract.ReasonClusterFactsIncomplete, "ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts, err := reader(t, objects(t, clustertest.Options{}), interceptor.Funcs{},
				test.change).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
			problems := cluster.Problems(err)
			if len(problems) != 1 || problems[0].Reason != test.reason ||
				!strings.Contains(problems[0].Detail, test.names) {
				t.Fatalf("the problems are %v from %v", problems, err)
			}
			if !onlyProblems(err) {
				t.Errorf("the error has more than problems: %v", err)
			}
			if facts.APIServer != "" {
				t.Error("facts are returned together with an error")
			}
		})
	}
}

func typeName(o client.Object) string {
	switch o.(type) {
	case *configv1.Infrastructure:
		return "config.Infrastructure"
	case *configv1.Network:
		return "config.Network"
	case *operatorv1.Network:
		return "operator.Network"
	case *machineconfigurationv1.ControllerConfig:
		return "ControllerConfig"
	case *machineconfigurationv1.MachineConfigPool:
		return "MachineConfigPool"
	case *machineconfigurationv1.MachineConfig:
		return "MachineConfig"
	case *corev1.Secret:
		return "Secret"
	}
	return ""
}

// edit changes the objects of one type.
func edit[T client.Object](change func(T)) func(client.Object) bool {
	return func(o client.Object) bool {
		if object, ok := o.(T); ok {
			change(object)
		}
		return true
	}
}

func TestAllProblemsAreGivenAtOnce(t *testing.T) {
	t.Parallel()
	_, err := reader(t, nil, interceptor.Funcs{}, nil).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if problems := cluster.Problems(err); len(problems) != 6 {
		t.Errorf("%d problems: %v", len(problems), err)
	}
}

func TestAPassingFaultIsNoProblem(t *testing.T) {
	t.Parallel()
	failing := func(failure error) interceptor.Funcs {
		return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
			o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Secret); ok {
				return failure
			}
			return c.Get(ctx, key, o, opts...)
		}}
	}
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, test := range map[string]struct {
		failure  error
		problems int
	}{
		"a timeout passes": {apierrors.NewTimeoutError("slow", 1), 0},
		"a right that is lacking doesn't": {apierrors.NewForbidden(secrets, "node-bootstrapper-token",
			errors.New("no")), 2},
		"nor does a kind that is lacking": {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Secret"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := reader(t, objects(t, clustertest.Options{}), failing(test.failure), nil).Facts(t.Context(),
				v1alpha1.WindowsMachineConfigSpec{})
			if got := len(cluster.Problems(err)); got != test.problems || err == nil {
				t.Errorf("%d problems in %v", got, err)
			}
			if onlyProblems(err) != (test.problems > 0) {
				t.Errorf("the error should be retried: %v", err)
			}
		})
	}
	t.Run("an API server that does not answer is a passing fault", func(t *testing.T) {
		t.Parallel()
		c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects(t, clustertest.Options{})...).Build()
		r, err := cluster.NewReader(cluster.Options{Cached: c, Live: c, Version: server(""),
			Namespace: contract.OperatorNamespace, Access: access(t, everything)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{}); err == nil ||
			len(cluster.Problems(err)) > 0 {
			t.Errorf("got %v", err)
		}
	})
}

// On Windows nodes, kube-proxy uses kubelet's identity. The Node authorizer lets it read Services, but this is not
// enough.
func TestThatKubeProxyMayNotReadEndpointsIsATroubleAndKeepsNoHost(t *testing.T) {
	t.Parallel()
	for granted, want := range map[bool]int{true: 0, false: 1} {
		c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects(t, clustertest.Options{})...).Build()
		r, err := cluster.NewReader(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"),
			Namespace: contract.OperatorNamespace, Access: access(t, func(s authorizationv1.SubjectAccessReviewSpec) bool {
				return granted || !strings.HasPrefix(s.User, "system:node:") || !slices.Contains(s.Groups, "system:nodes") ||
					s.ResourceAttributes.Resource != "endpointslices"
			})})
		if err != nil {
			t.Fatal(err)
		}
		facts, err := r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
		if err != nil {
			t.Fatal(err)
		}
		if len(facts.Troubles) != want || want > 0 && facts.Troubles[0].Reason != contract.ReasonServicesNotGranted {
			t.Errorf("granted %t: %v", granted, facts.Troubles)
		}
	}
}

func TestABundleIsTheSameHoweverItIsOrdered(t *testing.T) {
	t.Parallel()
	one, err := clustertest.Certificate("one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := clustertest.Certificate("two")
	if err != nil {
		t.Fatal(err)
	}
	broken := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	key := []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")
	facts := func(bundles ...[]byte) blueprint.Facts {
		o := clustertest.Options{KubeletCA: slices.Concat(bundles...), RootCA: one}
		f, factsErr := reader(t, objects(t, o), interceptor.Funcs{}, nil).Facts(t.Context(),
			v1alpha1.WindowsMachineConfigSpec{})
		if factsErr != nil {
			t.Fatal(factsErr)
		}
		return f
	}
	want := facts(one, two).KubeletCA
	if strings.Count(want, "BEGIN CERTIFICATE") != 2 {
		t.Fatalf("bundle is %s", want)
	}
	for name, got := range map[string]string{
		"reversed":                     facts(two, one).KubeletCA,
		"with one twice":               facts(two, one, two).KubeletCA,
		"with a comment":               facts([]byte("# comment\n"), one, []byte("\n\n"), two).KubeletCA,
		"with one that does not parse": facts(one, broken, two).KubeletCA,
		"with a key":                   facts(one, key, two).KubeletCA,
	} {
		if got != want {
			t.Errorf("%s the bundle is different", name)
		}
	}
}

func TestStatusUpdatesDoNotChangeTheContentOfInputs(t *testing.T) {
	t.Parallel()
	all := objects(t, clustertest.Options{VXLANPort: 9898})
	inputs := reader(t, all, interceptor.Funcs{}, nil).Inputs()
	if len(inputs) != 13 {
		t.Fatalf("%d inputs", len(inputs))
	}
	inputs = inputs[:5] // other tests cover the remaining inputs
	find := func(input cluster.Input) client.Object {
		i := slices.IndexFunc(all, func(o client.Object) bool {
			return typeName(o) == typeName(input.Object) && o.GetName() == input.Object.GetName()
		})
		if i < 0 {
			t.Fatalf("no object for %T", input.Object)
		}
		return all[i]
	}
	quiet := []func(client.Object) bool{
		edit(func(o *configv1.Infrastructure) { o.Status.EtcdDiscoveryDomain = "x" }),
		edit(func(o *configv1.Network) { o.Status.ClusterNetworkMTU = 1400 }),
		edit(func(o *operatorv1.Network) { o.Status.Version = "x" }),
		edit(func(o *machineconfigurationv1.ControllerConfig) {
			o.Status.ObservedGeneration, o.Spec.ReleaseImage = 7, "y"
		}),
		edit(func(o *machineconfigurationv1.MachineConfigPool) { o.Status.ReadyMachineCount = 3 }),
	}
	loud := []func(client.Object) bool{
		edit(func(o *configv1.Infrastructure) { o.Status.APIServerInternalURL = "https://other:6443" }),
		edit(func(o *configv1.Network) { o.Spec.ServiceNetwork = []string{"10.0.0.0/16"} }),
		edit(func(o *operatorv1.Network) {
			*o.Spec.DefaultNetwork.OVNKubernetesConfig.HybridOverlayConfig.HybridOverlayVXLANPort = 4790
		}),
		edit(func(o *machineconfigurationv1.ControllerConfig) { o.Spec.KubeAPIServerServingCAData = []byte("x") }),
		edit(func(o *machineconfigurationv1.MachineConfigPool) { o.Status.Configuration.Name = "rendered-worker-2" }),
	}
	for i, input := range inputs {
		object := find(input)
		before := input.Content(object)
		object.SetResourceVersion("2")
		object.SetAnnotations(map[string]string{"a": "b"})
		quiet[i](object)
		if input.Content(object) != before {
			t.Errorf("%T: an irrelevant change is treated as relevant", object)
		}
		loud[i](object)
		if input.Content(object) == before {
			t.Errorf("%T: a relevant change is treated as irrelevant", object)
		}
	}
}

func TestTheBootstrapTokenIsNowhereInTheFacts(t *testing.T) {
	t.Parallel()
	facts, err := reader(t, objects(t, clustertest.Options{}), interceptor.Funcs{}, nil).Facts(t.Context(),
		v1alpha1.WindowsMachineConfigSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(facts.BootstrapCA, "not to be read") {
		t.Error("the CA has the token")
	}
}

func TestAReaderNeedsItsClients(t *testing.T) {
	t.Parallel()
	if _, err := cluster.NewReader(cluster.Options{}); err == nil {
		t.Error("NewReader accepted missing clients")
	}
}

// onlyProblems reports whether an error has only problems, so that a retry without a change is useless.
func onlyProblems(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by hand, as cluster.Problems does
	case *contract.Problem:
		return true
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(inner error) bool { return !onlyProblems(inner) })
	case interface{ Unwrap() error }:
		return onlyProblems(e.Unwrap())
	}
	return false
}
