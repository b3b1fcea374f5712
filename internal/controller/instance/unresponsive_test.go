package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// mirrored is a revision that daemons apply at once, without a slot in the rollout budget.
const mirrored = "1.0.0-eeeeeeeeee"

// unresponsive returns hosts that have joined, and whose daemons have reported nothing for a long time. A revision that
// affects no pods is desired.
func unresponsive(t *testing.T, hosts ...int) *rig {
	t.Helper()
	r := staged(t, hosts...)
	r.publish(t, first, contract.Manifest{})
	r.clock = r.clock.Add(24 * time.Hour)
	r.version = mirrored
	for _, n := range hosts {
		r.annotate(t, n, contract.ApplyStatusAnnotation, "FileFailed: something of before")
		r.reconcile(t, n)
		if a := r.node(t, n).Annotations; a[contract.DesiredRevisionAnnotation] != mirrored ||
			a[contract.ApplyStatusAnnotation] != "" {
			t.Fatalf("the Node of host %d has the annotations %v", n, a)
		}
	}
	r.clock = r.clock.Add(journey.QuietPeriod)
	for _, n := range hosts {
		r.reconcile(t, n) // the operator starts to wait for a response
	}
	return r
}

// expires lets the certificate of a host's daemon expire. Then it advances the clock until the daemon counts as dead.
func (r *rig) expires(t *testing.T, n int) {
	t.Helper()
	r.annotate(t, n, contract.CertificateEndAnnotation, r.clock.Format(time.RFC3339))
	if _, _, err := r.journeys.health.Unresponsive(t.Context(), r.get(t, n)); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(6 * time.Minute)
}

// alerts reports whether the metric for the alert WindowsDaemonUnresponsive is 1 for a host.
func (r *rig) alerts(t *testing.T, n int) bool {
	t.Helper()
	return strings.Contains(scrape(t, r.parts), fmt.Sprintf(
		"wmco_instance_daemon_unresponsive{node=%q,windows_instance=%q} 1\n", r.node(t, n).Name, key(n).Name))
}

// rescued simulates a host that is joined again, until its daemon reports its revision.
func (r *rig) rescued(t *testing.T, n int) {
	t.Helper()
	for range 3 { // first the drain, then the certificate, then the revision
		r.sign(t)
		r.reconcile(t, n)
	}
	r.annotate(t, n, contract.RevisionAnnotation, r.version)
	r.annotate(t, n, contract.CertificateEndAnnotation, r.clock.Add(14*24*time.Hour).Format(time.RFC3339))
	r.reconcile(t, n)
	r.reconcile(t, n)
	i := r.expect(t, n, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
	if i.Status.HasSlot() || i.Status.DesiredRevision != r.version ||
		r.node(t, n).Spec.Unschedulable {
		t.Fatalf("after the join, the status is %+v", i.Status)
	}
}

func TestADaemonThatDoesNotAnswerIsRescuedOverSSH(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1)
	dials := r.machine(1).Dials()
	r.advance(t, 1, journey.QuietPeriod+5*time.Second)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonRevisionPending)
	r.advance(t, 1, 275*time.Second)
	if r.machine(1).Dials() != dials {
		t.Fatal("the daemon did not get its time")
	}
	r.advance(t, 1, 10*time.Second)
	i := r.get(t, 1)
	if r.machine(1).Dials() != dials+1 || !i.Status.HasSlot() {
		t.Fatalf("%d connections, status %+v", r.machine(1).Dials()-dials, i.Status)
	}
	r.rescued(t, 1)
	if r.machine(1).Dials() != dials+1 {
		t.Errorf("%d connections", r.machine(1).Dials()-dials)
	}
	writes := r.statusWrites
	r.advance(t, 1, time.Hour)
	if r.statusWrites != writes || r.machine(1).Dials() != dials+1 {
		t.Error("the operator does not leave a healthy daemon alone")
	}
}

// Before the join, the operator evicts the node's pods, as for an upgrade. An event must announce this.
func TestAnEventSaysThatANodeHasItsTurnToBeJoinedAgain(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1)
	r.advance(t, 1, 10*time.Second)
	r.advance(t, 1, 6*time.Minute)
	r.rescued(t, 1)
	if events := r.started(); len(events) != 1 || events[0].reason != journey.EventRejoinStarted ||
		events[0].note != "node win-a was granted a slot in the rollout budget to be joined again over SSH" {
		t.Errorf("%+v", events)
	}
}

// started returns the events that announce work on a node.
func (r *rig) started() (events []told) {
	for _, e := range r.events {
		if _, ok := e.regarding.(*v1alpha1.WindowsInstance); ok && strings.HasSuffix(e.reason, "Started") {
			events = append(events, e)
		}
	}
	return events
}

func TestADaemonThatAnswersIsNotRescued(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]func(t *testing.T, r *rig){
		"it has the version": func(t *testing.T,
			r *rig) {
			t.Helper()
			r.annotate(t, 1, contract.RevisionAnnotation, mirrored)
		},
		"it reports why not": func(t *testing.T, r *rig) {
			t.Helper()
			r.annotate(t, 1, contract.ApplyStatusAnnotation, "FileFailed: x")
		},
		"its node is not Ready": func(t *testing.T, r *rig) { t.Helper(); r.isReady(t, 1, false) },
		"its instance is paused": func(t *testing.T, r *rig) {
			t.Helper()
			r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
		},
		"the end of its certificate is invalid": func(t *testing.T, r *rig) {
			t.Helper()
			r.annotate(t, 1, contract.RevisionAnnotation, mirrored)
			r.annotate(t, 1, contract.CertificateEndAnnotation, strings.Repeat("2001", 1000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := unresponsive(t, 1)
			dials := r.machine(1).Dials()
			says(t, r)
			for range 3 {
				r.advance(t, 1, 3*time.Minute)
			}
			if i := r.get(t, 1); r.machine(1).Dials() != dials {
				t.Errorf("%d connections, status %+v", r.machine(1).Dials()-dials, i.Status)
			}
		})
	}
}

// looksInTime checks that the operator does not join a host again within the next four minutes, but does so within six.
// dials is how often the operator has dialled the host so far.
func (r *rig) looksInTime(t *testing.T, i, dials int) {
	t.Helper()
	r.advance(t, i, 4*time.Minute)
	if r.machine(i).Dials() != dials {
		t.Fatal("the daemon did not get its time")
	}
	r.advance(t, i, 2*time.Minute)
	if r.machine(i).Dials() == dials {
		t.Error("the operator did not connect to the host")
	}
}

func TestAPauseGivesADaemonTimeAnew(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1)
	r.advance(t, 1, 4*time.Minute)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.reconcile(t, 1)
	r.advance(t, 1, time.Hour)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
	r.reconcile(t, 1) // after the pause, the operator tries once whether the key is still accepted
	r.looksInTime(t, 1, r.machine(1).Dials())
}

func TestAnOperatorThatWasAwayListensFirst(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1)
	dials := r.machine(1).Dials()
	r.advance(t, 1, time.Minute)
	r.clock = r.clock.Add(time.Hour)
	r.restart(t)
	r.reconcile(t, 1)
	r.advance(t, 1, 4*time.Minute)
	if r.machine(1).Dials() != dials {
		t.Fatalf("%d connections", r.machine(1).Dials()-dials)
	}
	r.advance(t, 1, 2*time.Minute)
	if r.machine(1).Dials() == dials {
		t.Error("the operator did not connect to the host")
	}
}

func TestUnresponsiveDaemonsAreRescuedWithinTheBudget(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1, 2)
	dials := r.machine(2).Dials()
	r.clock = r.clock.Add(10 * time.Second)
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	r.clock = r.clock.Add(5 * time.Minute)
	r.reconcile(t, 1)
	for range 3 {
		r.advance(t, 2, time.Minute)
	}
	if i := r.expect(t, 2, v1alpha1.PhaseReady, "", contract.ReasonDaemonUnresponsive); r.machine(2).Dials() != dials ||
		i.Status.HasSlot() || codeOf(i) != "W713" ||
		!strings.Contains(i.Status.Message(), "waits for the rollout budget") {
		t.Fatalf("%d connections, status %+v", r.machine(2).Dials()-dials, i.Status)
	}
	r.rescued(t, 1)
	r.reconcile(t, 2)
	if r.machine(2).Dials() != dials+1 {
		t.Fatalf("%d connections", r.machine(2).Dials()-dials)
	}
	r.rescued(t, 2)
}

func TestADaemonWhoseCertificateEndedIsRescuedOverSSH(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1)
	r.annotate(t, 1, contract.RevisionAnnotation, mirrored)
	r.annotate(t, 1, contract.CertificateEndAnnotation, r.clock.Add(time.Hour).Format(time.RFC3339))
	dials := r.machine(1).Dials()
	if result := r.reconcile(t, 1); result.RequeueAfter != time.Hour {
		t.Errorf("the instance is reconciled again after %s", result.RequeueAfter)
	}
	r.advance(t, 1, time.Hour)
	r.advance(t, 1, 4*time.Minute)
	if r.machine(1).Dials() != dials || r.alerts(t, 1) {
		t.Fatal("the daemon did not get its time")
	}
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.advance(t, 1, 2*time.Minute)
	for n := range 3 { // an unreachable host stays in service, has no slot, and is tried less and less often
		if !r.alerts(t, 1) {
			t.Errorf("failure %d: the alert does not fire", n)
		}
		i := r.expect(t, 1, v1alpha1.PhaseConnecting, "", contract.ReasonUnreachable)
		if r.machine(1).Dials() != dials+n+1 || i.Status.HasSlot() || i.Status.Failures != int32(n+1) ||
			condition(i, v1alpha1.ConditionReady) != "True NodeReady" || r.node(t, 1).Spec.Unschedulable {
			t.Fatalf("failure %d: %d connections, status %+v", n+1, r.machine(1).Dials()-dials, i.Status)
		}
		r.advance(t, 1, policy.NextAttempt(i).Sub(r.clock))
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	if r.alerts(t, 1) {
		t.Error("the alert fires for a paused host")
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
	r.machine(1).Fail(hosttest.Dialling, nil)
	r.advance(t, 1, time.Minute)
	r.rescued(t, 1)
	if r.alerts(t, 1) {
		t.Error("the alert still fires")
	}
	// The daemon reports an old or wrong certificate again. This must not start another join.
	r.annotate(t, 1, contract.CertificateEndAnnotation, r.clock.Add(-6*time.Minute).Format(time.RFC3339))
	last := r.machine(1).Dials()
	r.advance(t, 1, 7*time.Minute)
	if r.machine(1).Dials() != last {
		t.Error("the host was joined again")
	}
}

func TestADaemonThatComesBackByItselfIsNotRescued(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1)
	r.advance(t, 1, 10*time.Second)
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.advance(t, 1, 6*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseConnecting, "", contract.ReasonUnreachable)
	r.annotate(t, 1, contract.RevisionAnnotation, mirrored)
	dials := r.machine(1).Dials()
	r.advance(t, 1, time.Minute)
	if i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady); r.machine(1).Dials() != dials ||
		i.Status.Failures != 0 {
		t.Errorf("%d connections, status %+v", r.machine(1).Dials()-dials, i.Status)
	}
}

// blocksItsRescue makes the operator drain a node before a join. While blocked is true, a disruption budget blocks the
// drain.
func (r *rig) blocksItsRescue(t *testing.T, blocked *bool) {
	t.Helper()
	r.evicts(blocked)
	r.pod(t, 1, "web")
	r.advance(t, 1, 10*time.Second)
	r.advance(t, 1, 6*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseBootstrapping, "", contract.ReasonDraining)
}

func TestABlockedDrainOfARescueEndsAlthoughTheCordonMayNotBeLifted(t *testing.T) {
	t.Parallel()
	r, blocked := unresponsive(t, 1), true
	r.blocksItsRescue(t, &blocked)
	r.broken["node"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("hands off"))
	r.advance(t, 1, 11*time.Minute)
	r.clock = r.clock.Add(time.Minute)
	again := r.reconcile(t, 1).RequeueAfter
	r.expect(t, 1, v1alpha1.PhaseBootstrapping, "", contract.ReasonAPICallFailed)
	if again < 10*time.Second {
		t.Errorf("retried after %s", again)
	}
	delete(r.broken, "node")
	r.advance(t, 1, time.Minute)
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonDrainBlocked) ||
		r.node(t, 1).Spec.Unschedulable {
		t.Errorf("status %+v", i.Status)
	}
}

func TestADaemonThatComesBackBeforeItIsStoppedIsNotRescued(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(t *testing.T, r *rig) contract.Reason{
		"the drain is blocked": func(t *testing.T, r *rig) contract.Reason {
			t.Helper()
			r.advance(t, 1, 11*time.Minute)
			return contract.ReasonDrainBlocked
		},
		"a user uncordons the node": func(t *testing.T, r *rig) contract.Reason {
			t.Helper()
			r.changes(t, 1, func(n *corev1.Node) { n.Spec.Unschedulable = false })
			r.reconcile(t, 1)
			return contract.ReasonUncordoned
		},
		"the connection breaks": func(t *testing.T, r *rig) contract.Reason {
			t.Helper()
			r.machine(1).Break()
			r.machine(1).Fail(hosttest.Dialling, unreachable())
			r.reconcile(t, 1)
			return contract.ReasonUnreachable
		},
		"another operator drains on": func(t *testing.T, r *rig) contract.Reason {
			t.Helper()
			r.restart(t)
			r.reconcile(t, 1)
			r.advance(t, 1, 11*time.Minute)
			return contract.ReasonDrainBlocked
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, blocked := unresponsive(t, 1), true
			r.blocksItsRescue(t, &blocked)
			r.annotate(t, 1, contract.RevisionAnnotation, mirrored)
			reason := ends(t, r)
			if i := r.get(t, 1); i.Status.Reason() != string(reason) || i.Status.Failures != 1 ||
				journey.HasStoppedDaemon(&i.Status) {
				t.Fatalf("status %+v", i.Status)
			}
			dials := r.machine(1).Dials()
			for range 3 {
				r.advance(t, 1, time.Minute)
			}
			i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
			if i.Status.HasSlot() || r.node(t, 1).Spec.Unschedulable || r.machine(1).Dials() != dials {
				t.Errorf("%d connections, status %+v", r.machine(1).Dials()-dials, i.Status)
			}
		})
	}
}

// If an operator is killed, the next operator doesn't know whether the daemon was already stopped.
func TestADaemonThatIsAboutToBeStoppedIsRescuedByAnotherOperator(t *testing.T) {
	t.Parallel()
	r, blocked := unresponsive(t, 1), true
	r.blocksItsRescue(t, &blocked)
	blocked = false
	r.reconcile(t, 1)
	before, noted := r.calls(1, contract.VerbBootstrap), 0
	ctx, kill := context.WithCancel(t.Context())
	r.saving = func() {
		if journey.HasStoppedDaemon(r.written) {
			noted++
			kill()
		}
	}
	if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: key(1)}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.saving = nil
	i := r.get(t, 1)
	if !r.alerts(t, 1) {
		t.Error("the daemon is stopped, but the alert does not fire")
	}
	if noted != 1 || !journey.HasStoppedDaemon(&i.Status) || r.calls(1, contract.VerbBootstrap) != before {
		t.Fatalf("saved %d times, status %+v", noted, i.Status)
	}
	r.annotate(t, 1, contract.RevisionAnnotation, mirrored)
	i.Status.Slot = nil
	if err := r.api.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	r.restart(t)
	for range 4 {
		r.advance(t, 1, time.Minute)
		r.sign(t)
	}
	if i = r.get(t, 1); r.calls(1, contract.VerbHandover) != 2 || journey.HasStoppedDaemon(&i.Status) {
		t.Errorf("%d calls, status %+v", r.calls(1, contract.VerbHandover), i.Status)
	}
}

func TestAnUpdateGoesOverSSHAtOnceWhereTheDaemonDoesNotRespond(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.clock = r.clock.Add(24 * time.Hour)
	r.expires(t, 1)
	dials := r.machine(1).Dials()
	r.reconcile(t, 1)
	if i := r.get(t, 1); r.machine(1).Dials() != dials+1 || !i.Status.HasSlot() {
		t.Fatalf("%d connections, status %+v", r.machine(1).Dials()-dials, i.Status)
	}
	r.rescued(t, 1)
}

func TestADaemonThatDiesAgainAfterItsRescueIsTriedAnew(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1)
	r.advance(t, 1, 10*time.Second)
	r.advance(t, 1, 5*time.Minute)
	for range 3 {
		r.sign(t)
		r.reconcile(t, 1)
	}
	r.expect(t, 1, v1alpha1.PhaseConfirming, "", contract.ReasonRevisionPending)
	dials := r.machine(1).Dials()
	r.advance(t, 1, 6*time.Minute)
	if i := r.expect(t, 1, v1alpha1.PhaseConfirming, "", contract.ReasonDaemonUnresponsive); i.Status.Failures != 1 ||
		policy.NextAttempt(i).IsZero() || i.Status.HasSlot() {
		t.Errorf("status %+v", i.Status)
	}
	r.advance(t, 1, 10*time.Second)
	if r.machine(1).Dials() != dials+1 {
		t.Errorf("%d connections", r.machine(1).Dials()-dials)
	}
}

// kubelet sets the time of its report itself. If the host's clock is behind, the report seems older than it is.
func TestAHostWhoseClockIsWrongIsJoinedAgainWhenOthersAre(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]time.Duration{"behind": -time.Hour, "right": 0, "ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, listed(1)...)
			r.join(t, 1)
			dials := r.machine(1).Dials()
			r.changes(t, 1, func(n *corev1.Node) {
				n.Status.Conditions[0].Status = corev1.ConditionFalse
				n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(r.clock.Add(wrong))
			})
			for _, left := range []time.Duration{10 * time.Minute, time.Second} {
				if result := r.reconcile(t, 1); r.machine(1).Dials() != dials || result.RequeueAfter > left {
					t.Fatalf("%d connections, reconciled again after %s, with %s left", r.machine(1).Dials()-dials,
						result.RequeueAfter, left)
				}
				r.clock = r.clock.Add(left - time.Second)
			}
			r.clock = r.clock.Add(time.Second)
			r.reconcile(t, 1)
			if r.machine(1).Dials() != dials+1 {
				t.Errorf("after ten minutes, the operator did not connect to the host: %+v", r.get(t, 1).Status)
			}
		})
	}
}
