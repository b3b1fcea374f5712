package publish

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/test/clustertest"
)

// release implements cluster.Versioner.
type release string

func (r release) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: string(r)}, nil
}

// operator is a world with the facts of an OpenShift cluster. If forbidden is set, lists of ServiceCIDRs are refused.
type operator struct {
	*world
	forbidden bool
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	objects, err := clustertest.Objects(clustertest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{world: newWorld(t, objects...)}
	o.restart(t)
	return o
}

// restart simulates a new operator process, which only knows what the old one published.
func (o *operator) restart(t *testing.T) {
	t.Helper()
	api, ok := o.client.(client.WithWatch)
	if !ok {
		t.Fatal("the client does not support watches")
	}
	reads := interceptor.NewClient(api, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, options ...client.ListOption) error {
		if _, is := list.(*networkingv1.ServiceCIDRList); is && o.forbidden {
			return apierrors.NewForbidden(networkingv1.Resource("servicecidrs"), "", errors.New("no"))
		}
		return c.List(ctx, list, options...)
	}})
	clients := kubernetesfake.NewClientset()
	clients.PrependReactor("create", "subjectaccessreviews",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &authorizationv1.SubjectAccessReview{
				Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
		})
	reader, err := cluster.NewReader(cluster.Options{Cached: reads, Live: reads, Version: release("v1.36.3"),
		Namespace: contract.OperatorNamespace, Access: clients.AuthorizationV1().SubjectAccessReviews()})
	if err != nil {
		t.Fatal(err)
	}
	o.publisher.Facts, o.publisher.source = reader, &Source{}
}

// rotate changes the CA for kubelets to a different one, and publishes.
func (o *operator) rotate(t *testing.T) {
	t.Helper()
	config := &machineconfigurationv1.ControllerConfig{}
	if err := o.client.Get(t.Context(), client.ObjectKey{Name: "machine-config-controller"}, config); err != nil {
		t.Fatal(err)
	}
	certificate, err := clustertest.Certificate("rotated")
	if err != nil {
		t.Fatal(err)
	}
	config.Spec.KubeAPIServerServingCAData = certificate
	if err = o.client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	o.publish(t)
	published, _, ok := o.publisher.source.Published()
	if !ok || !slices.ContainsFunc(published.Manifest.Files, func(f contract.File) bool {
		return f.Path == contract.PathKubeletCA && f.Content == string(certificate)
	}) {
		t.Error("the new CA is not published")
	}
}

// After the old CA has expired, kubelets would refuse the API server. So kubelets must get the new CA in time, even if
// an unrelated CA bundle is invalid.
func TestA21_AKubeletCAIsRotatedBesideABundleThatIsJunk(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	image := &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: configv1.ImageSpec{AdditionalTrustedCA: configv1.ConfigMapNameReference{Name: "registries"}}}
	bundles := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, Name: "registries"},
		Data: map[string]string{"m.example": "junk"}}
	if err := clustertest.Apply(t.Context(), o.client, image, bundles); err != nil {
		t.Fatal(err)
	}
	o.publish(t)
	before := o.current(t)
	o.rotate(t)
	after := o.current(t)
	if _, isThere := o.manifests(t)[after.ConfigMapName()]; !isThere || after.Revision == before.Revision {
		t.Errorf("revision %s is there %v, after %s", after.Revision, isThere, before.Revision)
	}
	if len(after.Rejected) != 1 || !strings.Contains(after.Rejected[0].Detail, "m.example") {
		t.Errorf("the rejected settings are %v", after.Rejected)
	}
}

// serverCA returns the API server's CA, which hosts and nodes get.
func (o *operator) serverCA(t *testing.T) string {
	t.Helper()
	desired, facts, err := o.publisher.source.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(desired.Manifest.Files, func(f contract.File) bool { return f.Path == contract.PathBootstrapCA })
	if i < 0 || desired.Manifest.Files[i].Content != facts.BootstrapCA {
		t.Error("nodes and joining hosts get different CAs")
	}
	return facts.BootstrapCA
}

func TestNodesAreToldWhatChangesWhileTheAPIServersCACantBeRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		breaks func(ctx context.Context, c client.Client, secret *corev1.Secret) error
		says   string
	}{
		"no Secret": {func(ctx context.Context, c client.Client, secret *corev1.Secret) error {
			return c.Delete(ctx, secret)
		}, "does not exist"},
		"a Secret without CA": {func(ctx context.Context, c client.Client, secret *corev1.Secret) error {
			secret.Data = map[string][]byte{"ca.crt": []byte("rubbish")}
			return c.Update(ctx, secret)
		}, "ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.publish(t)
			before := o.serverCA(t)
			secret := &corev1.Secret{}
			if err := errors.Join(o.client.Get(t.Context(), client.ObjectKey{Namespace: contract.MachineConfigNamespace,
				Name: contract.BootstrapTokenSecret}, secret), test.breaks(t.Context(), o.client, secret)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				o.rotate(t)
				if o.serverCA(t) != before {
					t.Error("nodes get another CA of the API server")
				}
				troubles := o.troubles(t)
				if len(troubles) != 1 || troubles[0].Reason != contract.ReasonClusterFactsIncomplete ||
					!strings.Contains(troubles[0].Detail, contract.BootstrapTokenSecret) ||
					!strings.Contains(troubles[0].Detail, test.says) {
					t.Errorf("troubles are %v", troubles)
				}
				if again := o.publish(t).RequeueAfter; again != recheck {
					t.Errorf("reconciled again after %s", again)
				}
				o.restart(t)
			}
		})
	}
}

// A user who upgrades the operator by hand may forget to apply the new rights. An upgrade restarts the operator.
func TestNodesAreToldWhatChangesWhileNobodyMayReadServiceCIDRs(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.publish(t)
	o.forbidden = true
	o.rotate(t)
	if problems, troubles := o.publisher.source.Problems(), o.troubles(t); len(problems) != 0 || len(troubles) != 1 {
		t.Errorf("hosts wait for %v, troubles are %v", problems, troubles)
	}
	o.restart(t)
	o.rotate(t)
	if problems, troubles := o.publisher.source.Problems(), o.troubles(t); len(problems) != 0 || len(troubles) != 1 {
		t.Errorf("after a restart hosts wait for %v, troubles are %v", problems, troubles)
	}
	if err := o.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: contract.OperatorNamespace, Name: contract.MemorySecret}}); err != nil {
		t.Fatal(err)
	}
	o.restart(t) // as after an upgrade from a release that remembered nothing
	o.rotate(t)
	problems := o.publisher.source.Problems()
	if len(problems) != 1 || !strings.Contains(problems[0].Detail, "ServiceCIDRs may not be read") {
		t.Errorf("hosts wait for %v", problems)
	}
	changed := o.publisher.source.Changed()
	o.forbidden = false
	if again := o.publish(t).RequeueAfter; again != resync || len(o.publisher.source.Problems())+len(o.troubles(t)) > 0 {
		t.Errorf("reconciled again after %s, hosts wait for %v", again, o.publisher.source.Problems())
	}
	if len(changed) != 1 {
		t.Error("the source did not report that hosts can join again")
	}
}

func TestARightThatOnlyHostsNeedIsLookedForAgainSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	problem := contract.NewProblem(contract.ReasonBootstrapNotGranted, "no")
	w.facts.facts.Lacks = []*contract.Problem{problem}
	if again := w.publish(t).RequeueAfter; again != recheck {
		t.Errorf("reconciled again after %s", again)
	}
	if problems := w.publisher.source.Problems(); w.current(t).Revision == "" || len(problems) != 1 {
		t.Errorf("hosts wait for %v", problems)
	}
}
