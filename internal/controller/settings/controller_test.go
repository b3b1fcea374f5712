package settings

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/payload"
)

// rig is a Reconciler with simulated sources, and an API server that counts writes.
type rig struct {
	*Reconciler
	api       client.WithWatch
	key       error
	current   error
	problems  []*contract.Problem
	published blueprint.Desired
	rendered  int64
	facts     blueprint.Facts
	writes    int
	broken    error
}

func (r *rig) PrivateKey(context.Context) (credential.Key, error) { return credential.Key{}, r.key }
func (r *rig) Current(context.Context) (blueprint.Desired, blueprint.Facts, error) {
	return blueprint.Desired{Revision: "1-x"}, r.facts, r.current
}
func (r *rig) Published() (blueprint.Desired, int64, bool) {
	return r.published, r.rendered, r.published.Revision != ""
}
func (r *rig) Problems() []*contract.Problem      { return r.problems }
func (r *rig) Changed() <-chan event.GenericEvent { return nil }

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypeWithName(operatorConditionKind(), &unstructured.Unstructured{})
	r := &rig{}
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.WindowsMachineConfig{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				if r.broken != nil {
					return r.broken
				}
				r.writes++
				return c.SubResource(sub).Patch(ctx, o, patch, options...)
			},
		}).Build()
	r.Reconciler = &Reconciler{Options: Options{Namespace: "ns", Keys: r, Desired: r, Troubles: problem.NewState()}, events: events.NewFakeRecorder(10), meters: newMeters(nil), client: r.api, live: r.api, now: time.Now}
	return r
}

func (r *rig) reconcile(t *testing.T) *v1alpha1.WindowsMachineConfig {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	config := &v1alpha1.WindowsMachineConfig{}
	if err := r.api.Get(t.Context(), types.NamespacedName{Name: contract.MachineConfigObject}, config); err != nil {
		t.Fatal(err)
	}
	return config
}

func TestSettingsAreMadeAndThenWrittenOnlyWhenTheyChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.reconcile(t)
	config := r.reconcile(t)
	if r.writes != 1 || config.Status.DesiredRevision != "1-x" || !meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.ConditionAvailable) {
		t.Fatalf("%d writes, status %+v", r.writes, config.Status)
	}
	for range 3 {
		r.reconcile(t)
	}
	if r.writes != 1 {
		t.Errorf("nothing changed, but there were %d writes", r.writes-1)
	}
	if err := r.api.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t) // it creates the object again
}

func TestTheUsersSettingsStay(t *testing.T) {
	t.Parallel()
	own := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	own.Spec.Rollout.MaxConcurrentJoins = 3
	r := newRig(t, own)
	if config := r.reconcile(t); config.Spec.Rollout.MaxConcurrentJoins != 3 || r.writes != 1 {
		t.Errorf("spec %+v", config.Spec)
	}
}

func TestEverythingThatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	instance := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "10.0.0.1"}}
	elsewhere := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "10.0.0.2"}}
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: contract.InstancesConfigMap}, Data: map[string]string{"10.0.0.3": "junk"}}
	r := newRig(t, instance, elsewhere, list)
	registry := r.metered(t)
	r.key = contract.NewProblem(contract.ReasonPrivateKeyMissing, "no key")
	r.problems = []*contract.Problem{contract.NewProblem(contract.ReasonNetworkUnsupported, "no overlay")}
	r.current = errors.New("no version")
	r.reconcile(t)
	config := r.reconcile(t)
	c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAvailable)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != string(contract.ReasonPrivateKeyMissing) {
		t.Errorf("available is %+v", c)
	}
	if config.Status.Instances.Total != 1 || len(config.Status.RejectedEntries) != 1 || config.Status.DesiredRevision != "" {
		t.Errorf("status %+v", config.Status)
	}
	said := exposed(t, registry)
	for _, reason := range []contract.Reason{contract.ReasonPrivateKeyMissing, contract.ReasonNetworkUnsupported} {
		if !strings.Contains(said, `wmco_prerequisite_problems{reason="`+string(reason)+`"} 1`) {
			t.Errorf("no alert fires for %s: %s", reason, said)
		}
	}
	r.key, r.problems = nil, nil
	r.reconcile(t)
	if said = exposed(t, registry); strings.Contains(said, "wmco_prerequisite_problems{") {
		t.Errorf("the alert fires without a problem: %s", said)
	}
}

// A host that joins by itself needs no key. But an unusable key is always reported.
func TestA88_AKeyIsMissingOnlyForAHostOverSSH(t *testing.T) {
	t.Parallel()
	itself := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
		Spec: v1alpha1.WindowsInstanceSpec{ByItself: &v1alpha1.ByItself{}}}
	overSSH := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}
	for name, test := range map[string]struct {
		reason    contract.Reason
		instances []client.Object
		want      bool
	}{
		"no host":                            {contract.ReasonPrivateKeyMissing, nil, false},
		"a host that joins by itself":        {contract.ReasonPrivateKeyMissing, []client.Object{itself}, false},
		"a host over SSH, too":               {contract.ReasonPrivateKeyMissing, []client.Object{itself, overSSH}, true},
		"an invalid key, and no host for it": {contract.ReasonPrivateKeyInvalid, []client.Object{itself}, true},
	} {
		r := newRig(t, test.instances...)
		r.key = contract.NewProblem(test.reason, "no key")
		r.reconcile(t)
		c := meta.FindStatusCondition(r.reconcile(t).Status.Conditions, v1alpha1.ConditionAvailable)
		if c == nil || (c.Reason == string(test.reason)) != test.want {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// In the quick start without OpenShift, the operator is built without the programs that are only needed on other
// platforms and networks. These programs must not be reported as missing.
func TestA60_ProgramsOfOtherPlatformsAndNetworksAreNotMissing(t *testing.T) {
	t.Parallel()
	of := func(names ...string) (all []payload.Missing) {
		for _, name := range names {
			part, _ := payload.PartNamed(name)
			all = append(all, payload.Missing{Name: name, Feature: part.Feature})
		}
		return all
	}
	others := of(payload.NameAzureNodeManager, payload.NameECRProvider, payload.NameHybridOverlay)
	for name, test := range map[string]struct {
		platform contract.Platform
		missing  []payload.Missing
		want     string
	}{
		"without a cloud": {contract.PlatformNone, others, "nodes have every feature"},
		"without a cloud, and without csi-proxy": {contract.PlatformNone, append(of(payload.NameCSIProxy), others...),
			"off: CSI storage (csi-proxy.exe is missing)"},
		"on Azure": {contract.PlatformAzure, others,
			"off: cloud node manager on Azure (azure-cloud-node-manager.exe is missing)"},
		"on AWS": {contract.PlatformAWS, others,
			"off: image pulls from Amazon ECR (ecr-credential-provider.exe is missing)"},
	} {
		r := newRig(t)
		r.facts.Platform, r.facts.NetworkType = test.platform, blueprint.NetworkFlannel
		r.Missing = test.missing
		r.reconcile(t)
		c := meta.FindStatusCondition(r.reconcile(t).Status.Conditions, v1alpha1.ConditionPayloadComplete)
		if c == nil || c.Message != test.want || (c.Status == metav1.ConditionTrue) != (name == "without a cloud") {
			t.Errorf("%s: %+v", name, c)
		}
		r.current = errors.New("the facts of the cluster are not read yet")
		if now := meta.FindStatusCondition(r.reconcile(t).Status.Conditions, v1alpha1.ConditionPayloadComplete); *now != *c {
			t.Errorf("%s, before the facts are known: %+v", name, now)
		}
	}
}

// A Machine that can't become a node has no WindowsInstance, so the settings report its problem.
func TestMachinesThatBecomeNoNodesAreACondition(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.reconcile(t)
	degraded := func(status metav1.ConditionStatus, reason, says string) {
		t.Helper()
		c := meta.FindStatusCondition(r.reconcile(t).Status.Conditions, v1alpha1.ConditionDegraded)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
			t.Errorf("%+v, want %s %s, %q", c, status, reason, says)
		}
	}
	degraded(metav1.ConditionFalse, "AsExpected", "no host fails")
	r.Troubles.Set("machine", []*contract.Problem{contract.NewProblem(contract.ReasonMachineNameInvalid, "Machine winworker-0123456789")})
	degraded(metav1.ConditionTrue, "MachineNameInvalid", "Machine winworker-0123456789 (W106 MachineNameInvalid). Give its MachineSet")
	r.Troubles.Set("machine", nil)
	degraded(metav1.ConditionFalse, "AsExpected", "no host fails")
}

// If a valid entry can't become an instance, the controller that creates instances reports the problem.
func TestEntriesThatBecomeNoInstancesAreACondition(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.reconcile(t)
	r.Troubles.Set("source", []*contract.Problem{contract.NewProblem(contract.ReasonInstanceRefused, "no room for a")})
	c := meta.FindStatusCondition(r.reconcile(t).Status.Conditions, v1alpha1.ConditionDegraded)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "InstanceRefused" {
		t.Errorf("%+v", c)
	}
}

// metered registers the metrics of the reconciler.
func (r *rig) metered(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	r.meters = newMeters(registry)
	return registry
}

// An unknown time zone stops all disruptions, and an old failure stops all changes. Hosts can still join in both cases,
// so only a metric can trigger an alert.
func TestWhatIsInvalidOrLateIsCountedForAlerts(t *testing.T) {
	t.Parallel()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 2 * * 6",
		Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "Europe/Berlim"}}
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: contract.InstancesConfigMap},
		Data: map[string]string{"10.0.0.3": "junk"}}
	r := newRig(t, config, list)
	registry := r.metered(t)
	r.published = blueprint.Desired{Revision: "1-x", Rejected: []*contract.Problem{
		contract.NewProblem(contract.ReasonMirrorRejected, "a mirror")}}
	r.facts.Troubles = []*contract.Problem{contract.NewProblem(contract.ReasonRevisionNotPublished, "a quota")}
	config = r.reconcile(t)
	said := exposed(t, registry)
	for _, line := range []string{`wmco_rejected_settings{reason="RolloutSettingInvalid"} 1`,
		`wmco_rejected_settings{reason="MirrorRejected"} 1`, `wmco_degraded_problems{reason="RevisionNotPublished"} 1`,
		`wmco_degraded_problems{reason="EntryMalformed"} 1`} {
		if !strings.Contains(said, line+"\n") {
			t.Errorf("the metrics lack %s: %s", line, said)
		}
	}

	config.Spec.Rollout.MaintenanceWindows = nil
	r.published.Rejected, r.facts.Troubles = nil, nil
	if err := errors.Join(r.api.Update(t.Context(), config), r.api.Delete(t.Context(), list)); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	if said = exposed(t, registry); strings.Contains(said, "wmco_rejected_settings{") ||
		strings.Contains(said, "wmco_degraded_problems{") {
		t.Errorf("the alert fires without a problem: %s", said)
	}
}

// Even if OLM's object or the status can't be written, the metrics must be updated.
func TestMetricsFollowWhateverCanNotBeWritten(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(*rig){
		"OLM's object is missing": func(r *rig) { r.OperatorCondition = "wmco.v1" },
		"the status is not saved": func(r *rig) { r.broken = apierrors.NewServiceUnavailable("away") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{
				Name: contract.MachineConfigObject}})
			registry := r.metered(t)
			fails(r)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err == nil {
				t.Error("the write failed, but no error was returned")
			}
			if said := exposed(t, registry); !strings.Contains(said, "wmco_rollout_phase{phase=\"Idle\"} 1\n") {
				t.Errorf("the metrics are not updated: %s", said)
			}
		})
	}
}

func TestAllNodesThatFailedAreCountedAlsoThoseThatTheStatusDoesNotList(t *testing.T) {
	t.Parallel()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.FailureThreshold = 25
	r := newRig(t, config)
	for n := range 30 {
		i := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("host-%02d", n)}}
		i.Status.NodeName, i.Status.HeldRevision = i.Name, "1"
		i.Status.FailedRevision = "1-x"
		i.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUpdateFailed, LastTransitionTime: metav1.Now()}}
		if err := r.api.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	registry := r.metered(t)
	for range 2 {
		config = r.reconcile(t)
	}
	degraded := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionDegraded)
	if said := exposed(t, registry); len(config.Status.Rollout.Failures) != maxFailures ||
		!strings.Contains(degraded.Message, "30 nodes failed") || !strings.Contains(said, "wmco_rollout_failures 30\n") {
		t.Errorf("%d failures are listed, %s\n%s", len(config.Status.Rollout.Failures), degraded.Message, said)
	}
}

func TestWhatCanNotBeReadOrWrittenIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.reconcile(t)
	r.key = apierrors.NewServiceUnavailable("away")
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err == nil || r.writes != 0 {
		t.Errorf("an API server that is down is treated like a missing key: %v", err)
	}
	r.key, r.broken = nil, apierrors.NewServiceUnavailable("away")
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err == nil {
		t.Error("the status was not saved, but no error was returned")
	}
	r.broken = nil
	r.reconcile(t)
	if r.writes != 1 {
		t.Errorf("%d writes", r.writes)
	}
}

// An operator that has just started has published nothing yet. If it deleted the revision from the status, the
// publisher would use a new salt, and this would lead to a new revision for all nodes.
func TestARevisionStaysKnownUntilThereIsAnother(t *testing.T) {
	t.Parallel()
	before := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	before.Status.DesiredRevision = "1-before"
	r := newRig(t, before)
	r.current = contract.NewProblem(contract.ReasonManifestMissing, "nothing is published yet")
	if config := r.reconcile(t); config.Status.DesiredRevision != "1-before" {
		t.Errorf("before the first revision is published, the status has %q", config.Status.DesiredRevision)
	}
	r.problems = []*contract.Problem{contract.NewProblem(contract.ReasonNetworkUnsupported, "no overlay")}
	if config := r.reconcile(t); config.Status.DesiredRevision != "1-before" {
		t.Errorf("while no revision can be published, the status has %q", config.Status.DesiredRevision)
	}
	r.current, r.problems = nil, nil
	if config := r.reconcile(t); config.Status.DesiredRevision != "1-x" {
		t.Errorf("after another revision was published, the status has %q", config.Status.DesiredRevision)
	}
}

// A stale cache shows the status as it was before the operator's last write. By chance, this old status equals the new
// desired status, so nothing is written. When the cache shows the last write, the operator must reconcile again.
func TestItsOwnWriteOfTheStatusWakesIt(t *testing.T) {
	t.Parallel()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject,
		ResourceVersion: "1"}}
	looked := make(chan struct{}, 100)
	r := newRig(t, config)
	api := interceptor.NewClient(r.api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
		key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		if _, is := o.(*v1alpha1.WindowsMachineConfig); is {
			looked <- struct{}{}
		}
		return c.Get(ctx, key, o, options...)
	}})
	informers := &informertest.FakeInformers{Scheme: api.Scheme()}
	// Create all informers now, because concurrent watches would create them at the same time.
	for _, o := range []client.Object{&v1alpha1.WindowsInstance{}, &corev1.ConfigMap{}, &corev1.Secret{}} {
		if _, err := informers.FakeInformerFor(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	informer, err := informers.FakeInformerFor(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{Scheme: api.Scheme(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return api.RESTMapper(), nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return informers, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return api, nil },
	})
	if err == nil {
		options := r.Options
		options.Desired = published{r}
		err = Setup(mgr, options)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	look := func(when string) {
		t.Helper()
		select {
		case <-looked:
		case <-time.After(time.Minute):
			t.Fatalf("no reconcile %s", when)
		}
	}
	look("when it starts")
	written := config.DeepCopy()
	written.ResourceVersion, written.Status.DesiredRevision = "2", "1-x"
	informer.Update(config, written)
	look("at its own write: a status that is wrong stays so until something else happens")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// published implements Desired with a state that never changes.
type published struct{ *rig }

func (published) Changed() <-chan event.GenericEvent { return make(chan event.GenericEvent) }

func TestOnlyWhatIsCountedWakesIt(t *testing.T) {
	t.Parallel()
	old := &v1alpha1.WindowsInstance{}
	for name, test := range map[string]struct {
		change func(*v1alpha1.WindowsInstance)
		wakes  bool
	}{
		"another phase": {func(i *v1alpha1.WindowsInstance) { i.Status.Phase = v1alpha1.PhaseDelivering }, false},
		"a second failure": {func(i *v1alpha1.WindowsInstance) {
			meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing, Message: "again"})
		}, false},
		"the first failure": {func(i *v1alpha1.WindowsInstance) { i.Status.Failures = 1 }, true},
		"it is Ready": {func(i *v1alpha1.WindowsInstance) {
			meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue})
		}, true},
		"its update begins": {func(i *v1alpha1.WindowsInstance) {
			i.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Step: v1alpha1.StepStaging}
		}, true},
		"its reboot begins": {func(i *v1alpha1.WindowsInstance) {
			i.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityReboot, Step: v1alpha1.StepDraining}
		}, true},
		"its removal waits": {func(i *v1alpha1.WindowsInstance) {
			meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing,
				Reason: string(contract.ReasonRemovalPending)})
		}, true},
		"it leaves": {func(i *v1alpha1.WindowsInstance) { now := metav1.Now(); i.DeletionTimestamp = &now }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := old.DeepCopy()
			test.change(changed)
			if got := watch.Changed(shown).Update(event.UpdateEvent{ObjectOld: old, ObjectNew: changed}); got != test.wakes {
				t.Errorf("wakes = %v", got)
			}
		})
	}
}

func TestWhatNodesDoNotGetIsListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.published = blueprint.Desired{Revision: "1-x", KubeletFragment: []byte(`{"maxPods":60}`)}
	r.published.Rejected = []*contract.Problem{
		contract.NewProblem(contract.ReasonMirrorRejected, "a mirror"),
		contract.NewProblem(contract.ReasonKubeletConfigRefused, "a field"),
	}
	r.reconcile(t)
	config := r.reconcile(t)
	c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "MirrorRejected" {
		t.Errorf("the condition is %+v", c)
	}
	if d := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionDegraded); d == nil || d.Reason != "SettingsRejected" {
		t.Errorf("the condition is %+v", d)
	}
	if all := config.Status.RejectedSettings; len(all) != 2 || all[0].Code != "W908" || all[1].Code != "W913" {
		t.Errorf("the listed settings are %v", all)
	}
	if k := config.Status.Kubelet.AcceptedConfig; k == nil || string(k.Raw) != `{"maxPods":60}` {
		t.Errorf("the condition is %v", k)
	}

	r.published = blueprint.Desired{} // a new operator that has published nothing yet
	if again := r.reconcile(t); again.Status.Kubelet.AcceptedConfig == nil || len(again.Status.RejectedSettings) != 2 {
		t.Errorf("the rejected settings are lost: %+v", again.Status)
	}
	r.published = blueprint.Desired{Revision: "1-y"}
	config = r.reconcile(t)
	if !meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.ConditionAccepted) || config.Status.Kubelet.AcceptedConfig != nil || len(config.Status.RejectedSettings) > 0 {
		t.Errorf("a corrected setting is still listed: %+v", config.Status)
	}
}

func TestA43_TheDefaultPortOnVSphereIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts blueprint.Facts
		want  int
	}{
		"vSphere": {blueprint.Facts{Platform: contract.PlatformVSphere}, 1},
		"vSphere with a port": {blueprint.Facts{Platform: contract.PlatformVSphere,
			Network: blueprint.Network{VXLANPort: 9898}}, 0},
		"another platform": {blueprint.Facts{Platform: contract.PlatformAWS}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
			r := newRig(t, host)
			r.facts = c.facts
			told := events.NewFakeRecorder(10)
			r.events = told
			for range 3 {
				r.reconcile(t)
			}
			close(told.Events)
			var got []string
			for e := range told.Events {
				got = append(got, e)
			}
			if len(got) != c.want || c.want > 0 && !strings.Contains(got[0], "Warning VXLANPortDefault") {
				t.Errorf("the events are %q", got)
			}
		})
	}
}

// exposed returns the metrics as Prometheus reads them.
func exposed(t *testing.T, registry prometheus.Gatherer) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, family := range families {
		if _, err = expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// A user who waits for a change of the settings reads the condition's observed generation. So this must be the
// generation that was rendered.
func TestAcceptedIsAboutWhatWasRendered(t *testing.T) {
	t.Parallel()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject,
		Generation: 2}}
	r := newRig(t, config)
	r.published, r.rendered = blueprint.Desired{Revision: "1-x"}, 1
	for range 2 {
		c := meta.FindStatusCondition(r.reconcile(t).Status.Conditions, v1alpha1.ConditionAccepted)
		if c == nil || c.ObservedGeneration != r.rendered {
			t.Errorf("generation %d is rendered, but the condition is %+v", r.rendered, c)
		}
		r.rendered = 2
	}
}
