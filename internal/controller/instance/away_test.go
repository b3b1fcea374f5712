package instance

import (
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// proxied is a revision of the same release as the revision that the hosts joined with.
const proxied = "1.0.0-cccccccccc"

// away simulates a time without any operator, and then starts a new operator.
func (r *rig) away(t *testing.T, n int, d time.Duration) {
	t.Helper()
	r.clock = r.clock.Add(d)
	r.restart(t)
	r.reconcile(t, n)
}

// inPlace returns hosts that have joined. It publishes a revision for which the daemon only restarts services.
func inPlace(t *testing.T, hosts ...int) *rig {
	t.Helper()
	r := staged(t, hosts...)
	manifest := contract.Manifest{Services: []contract.Service{{Name: "kubelet", Command: `C:\k\kubelet.exe`,
		Disruptive: true, Bootstrap: true}}}
	r.publish(t, first, manifest)
	manifest.EnvironmentVars = map[string]string{"HTTP_PROXY": "http://p:1"}
	r.version, r.manifest = proxied, manifest
	return r
}

// The API server must store exactly the status that the operator wrote. Otherwise, each reconcile would write the
// status again.
func TestTimesAreThoseThatTheAPIServerKeeps(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.clock = r.clock.Add(123_456_789)
	kept := func() {
		t.Helper()
		i := r.get(t, 1)
		if !equality.Semantic.DeepEqual(*r.written, i.Status) {
			t.Errorf("wrote the status %+v, but the API server stores %+v", *r.written, i.Status)
		}
	}
	r.reconcile(t, 1)
	kept()
	r.join(t, 1)
	r.annotate(t, 1, contract.BootIDAnnotation, "boot-1")
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepDraining, contract.ReasonDraining)
	kept()
}

// If a daemon received no request for a revision, the revision has not failed, no matter how long ago the operator
// decided to request it.
func TestA29_ARevisionThatNobodyWasToldFailsNotWhileNoOperatorWorked(t *testing.T) {
	t.Parallel()
	r := inPlace(t, 1)
	r.broken["node"] = errors.New("the API server is away")
	_, _ = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)})
	if i := r.get(t, 1); i.Status.Upgrade() == nil || i.Status.Upgrade().Step != v1alpha1.StepSwitching {
		t.Fatalf("status %+v", i.Status)
	}
	delete(r.broken, "node")
	r.away(t, 1, 11*time.Minute)
	r.advance(t, 1, 9*time.Minute)
	i := r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != proxied ||
		i.Status.FailedRevision != "" {
		t.Fatalf("the daemon was told revision %s, the failed revision is %+v", told, i.Status.FailedRevision)
	}
	dials := r.machine(1).Dials()
	r.advance(t, 1, time.Minute) // the daemon may have died before the request, so its host is joined again
	if r.machine(1).Dials() == dials {
		t.Errorf("the host is not joined again when its time is over: %+v", r.get(t, 1).Status)
	}
	for range 12 {
		r.joinsAgain(t, 1)
		r.advance(t, 1, time.Minute)
	}
	if i = r.get(t, 1); i.Status.FailedRevision == "" {
		t.Errorf("the revision has not failed when its time is over: %+v", i.Status)
	}
}

// While the API server is away, a daemon can't report anything. A new operator must wait for a report before it counts
// the revision as failed.
func TestA29_ARevisionThatAppliedWhileNoOperatorWorkedHasNotFailed(t *testing.T) {
	t.Parallel()
	r := inPlace(t, 1)
	r.reconcile(t, 1)
	r.away(t, 1, 11*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.clock = r.clock.Add(20 * time.Second)
	r.arrives(t, 1, proxied)
	if i := r.get(t, 1); i.Status.Revision != proxied || i.Status.FailedRevision != "" || i.Status.Upgrade() != nil {
		t.Errorf("status %+v", i.Status)
	}
}

func TestA29_ADaemonThatGotNothingWhileNoOperatorServedItIsNotTakenOverSSH(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.reconcile(t, 1)
	dials := r.machine(1).Dials()
	r.annotate(t, 1, contract.StageStatusAnnotation, string(contract.ReasonPayloadIncomplete)+": nothing")
	r.away(t, 1, time.Hour)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepStaging, contract.ReasonStaging)
	r.advance(t, 1, 2*time.Minute)
	if i := r.get(t, 1); i.Status.Upgrade().Step != v1alpha1.StepStaging || r.machine(1).Dials() != dials {
		t.Fatalf("%d connections, status %+v", r.machine(1).Dials()-dials, i.Status)
	}
	r.advance(t, 1, 4*time.Minute) // the new operator measures the time from its own start
	r.reconcile(t, 1)
	if r.machine(1).Dials() == dials {
		t.Error("the operator did not connect to the host")
	}
}

func TestA30_AHostThatRebootedWhileNoOperatorWorkedIsNotRebootedAgain(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	r.away(t, 1, 21*time.Minute)
	i := r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	if !i.Status.HasSlot() || r.node(t, 1).Annotations[contract.RebootApprovedAnnotation] == "" {
		t.Fatalf("status %+v", i.Status)
	}
	r.annotate(t, 1, contract.BootIDAnnotation, "boot-2")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepVerifying, contract.ReasonSettling)
}

func TestA28_PodsThatNobodyToldToGoMeanwhileAreNoneThatStay(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.pod(t, 1, "db")
	r.reconcile(t, 1)
	r.annotate(t, 1, contract.StagedAnnotation, second)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	blocked = false
	r.away(t, 1, 11*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	r.advance(t, 1, time.Minute)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// If a join has stopped the daemon, the join must start the daemon again, even if the node has become healthy since.
func TestANodeThatRecoversInAJoinGetsItsDaemonBack(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(r *rig, t *testing.T){
		"the handover fails": func(r *rig, t *testing.T) {
			r.sign(t)
			r.machine(1).Fail(string(contract.VerbHandover), contract.NewProblem(contract.ReasonConnectionLost, "broken"))
			r.reconcile(t, 1)
			r.machine(1).Fail(string(contract.VerbHandover), nil)
		},
		"another operator takes over, and another host has the only slot": func(r *rig, t *testing.T) {
			i := r.get(t, 2)
			i.Status.Slot = &v1alpha1.Slot{Since: new(metav1.NewTime(r.clock))}
			if err := r.api.Status().Update(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			r.restart(t)
			r.reconcile(t, 1)
			r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonDaemonUnresponsive)
			i = r.get(t, 2)
			i.Status.Slot = nil
			if err := r.api.Status().Update(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			r.restart(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := steady(t, 1, 2)
			if err := r.api.DeleteAllOf(t.Context(), &certificatesv1.CertificateSigningRequest{}); err != nil {
				t.Fatal(err)
			}
			r.isReady(t, 1, false)
			r.clock = r.clock.Add(11 * time.Minute)
			r.reconcile(t, 1) // the join now waits for the certificate of the daemon
			r.isReady(t, 1, true)
			before := r.calls(1, contract.VerbHandover)
			interrupt(r, t)
			for range 3 {
				r.advance(t, 1, time.Minute)
				r.sign(t)
			}
			if r.calls(1, contract.VerbHandover) == before || journey.HasStoppedDaemon(&r.get(t, 1).Status) {
				t.Errorf("the daemon stays stopped: %+v", r.get(t, 1).Status)
			}
		})
	}
}
