package instance

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// calm returns hosts that have had the same revision for a day. desire publishes a revision that changes either a
// setting of kubelet or a file that no service reads. The daemon needs no new payload for these changes.
func calm(t *testing.T, hosts ...int) (r *rig, desire func(kubelet, file string)) {
	t.Helper()
	r = newRig(t)
	desire = func(kubelet, file string) {
		t.Helper()
		r.manifest = contract.Manifest{
			Services: []contract.Service{{Name: "kubelet", Command: `C:\k\kubelet.exe`, Disruptive: true, Bootstrap: true}},
			Files: []contract.File{
				{Path: `C:\k\kubelet.exe`, Digest: strings.Repeat("0", 64), Size: 1, Services: []string{"kubelet"}},
				{Path: `C:\k\kubelet.conf`, Content: kubelet, Services: []string{"kubelet"}},
				{Path: `C:\k\file`, Content: "file " + file},
			},
		}
		r.version = "1.0.0-" + r.manifest.Digest()[:contract.RevisionDigits]
		r.publish(t, r.version, r.manifest)
	}
	desire("before", "")
	for _, n := range hosts {
		if err := r.api.Create(t.Context(), listed(n)[0]); err != nil {
			t.Fatal(err)
		}
		r.join(t, n)
		r.talks(t, n)
		r.reconcile(t, n)
	}
	r.advance(t, hosts[0], 24*time.Hour)
	return r, desire
}

// A change of mirrors takes no node out of service. A node whose daemon has the request, but has not reported the
// revision yet, must not be treated as a node between two revisions. Otherwise, the operator would evict its pods
// despite disruption budgets and an administrator's cordon.
func TestANodeThatWasToldASettingThatNeedsNoPlaceHasNotLeftItsRevision(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then   func(t *testing.T, r *rig)
		reason contract.Reason
	}{
		"its pods can't be evicted": {func(t *testing.T, r *rig) { r.advance(t, 1, 11*time.Minute) },
			contract.ReasonDrainBlocked},
		"a user uncordons the node": {func(t *testing.T, r *rig) {
			r.changes(t, 1, func(n *corev1.Node) { n.Spec.Unschedulable = false })
			r.reconcile(t, 1)
		}, contract.ReasonUncordoned},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, desire := calm(t, 1)
			blocked := true
			r.evicts(&blocked)
			r.pod(t, 1, "web")
			desire("before", "a mirror")
			r.reconcile(t, 1)
			mirror := r.version
			if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != mirror {
				t.Fatalf("the daemon was told revision %s, want %s", told, mirror)
			}
			desire("after", "a mirror")
			r.reconcile(t, 1)
			r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
			test.then(t, r)
			r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, test.reason)
			if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != mirror {
				t.Errorf("the daemon was told revision %s", told)
			}
		})
	}
}

// A change of a setting needs no payload. So if a daemon has been dead for weeks, the operator notices this only when
// it requests the setting. The setting must not count as failed.
func TestADaemonThatWasDeadBeforeBlamesNoSetting(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	desire("after", "")
	dials := r.machine(1).Dials()
	r.reconcile(t, 1)
	for range 12 {
		r.advance(t, 1, time.Minute)
	}
	i := r.get(t, 1)
	if i.Status.FailedRevision != "" || r.machine(1).Dials() == dials {
		t.Fatalf("after verifyTimeout: %d dials, %+v", r.machine(1).Dials()-dials, i.Status)
	}
	r.register(t, 1, r.version)
	r.joinsAgain(t, 1)
	r.annotate(t, 1, contract.RevisionAnnotation, r.version)
	r.reconcile(t, 1)
	if i = r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || i.Status.Revision != r.version ||
		i.Status.HasSlot() || i.Status.FailedRevision != "" {
		t.Errorf("after the host was joined again, the status is %+v", i.Status)
	}
	r.reconcile(t, 2)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// The daemon got the request for the setting while a maintenance window was open, and the operator continues with a
// join over SSH. If the window closes before the join is complete, or if an attempt fails, the setting must not count
// as failed.
func TestAnUnresponsiveDaemonKeepsItsPlaceInAWindowThatCloses(t *testing.T) {
	t.Parallel()
	for name, failures := range map[string]int{
		"and is joined at once":                     0,
		"and is joined after an attempt that fails": 1,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := calm(t, 1, 2)
			windows := func(start string) {
				r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
					c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: start,
						Duration: metav1.Duration{Duration: time.Hour}}}
				})
			}
			// This change restarts services, but no pod needs to be evicted.
			r.manifest.EnvironmentVars = map[string]string{"HTTPS_PROXY": "http://proxy:3128"}
			r.version = "1.0.0-" + r.manifest.Digest()[:contract.RevisionDigits]
			r.publish(t, r.version, r.manifest)
			r.reconcile(t, 1)
			fails := failures
			r.slow, r.reaches = hosttestUnreachable, func(string) bool {
				if i := r.get(t, 1); !i.Status.HasSlot() {
					t.Errorf("the host is dialled without a slot: %+v", i.Status)
				}
				windows("0 22 * * 6")
				fails--
				return fails < 0
			}
			for range 12 + 2*failures {
				r.advance(t, 1, time.Minute)
			}
			r.joinsAgain(t, 1)
			if i := r.get(t, 1); !i.Status.HasSlot() || i.Status.Phase != v1alpha1.PhaseConfirming {
				t.Fatalf("after the window closed, the status is %+v", i.Status)
			}
			r.annotate(t, 1, contract.RevisionAnnotation, r.version)
			r.clock = r.clock.Add(time.Minute)
			windows(r.clock.Format("4 15 * * *"))
			r.reconcile(t, 1)
			r.reconcile(t, 1)
			if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || i.Status.Revision != r.version ||
				i.Status.HasSlot() || i.Status.FailedRevision != "" {
				t.Errorf("after the host was joined again, the status is %+v", i.Status)
			}
		})
	}
}

// If a setting disconnects each daemon from the API server, the rollout must stop after the first node.
func TestASettingAtWhichADaemonNeverReportsHaltsTheRollout(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	held := r.version
	desire("after", "")
	r.reconcile(t, 1)
	for range 12 {
		r.advance(t, 1, time.Minute)
	}
	r.joinsAgain(t, 1)
	for range 12 {
		r.advance(t, 1, time.Minute)
	}
	i := r.get(t, 1)
	if i.Status.FailedRevision != r.version || i.Status.DesiredRevision != held {
		t.Fatalf("the daemon never reported, not even after a join over SSH: %+v", i.Status)
	}
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2)) })
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRolloutHalted)
}

// hasSlot assigns a slot in the rollout budget to a host, for a reboot, or takes the slot away.
func (r *rig) hasSlot(t *testing.T, n int, has bool) {
	t.Helper()
	i := r.get(t, n)
	i.Status.Slot = nil
	if has {
		i.Status.Slot = &v1alpha1.Slot{Since: new(metav1.NewTime(r.clock))}
	}
	if err := r.api.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

// down makes a node NotReady. Then its host is joined again at its previous revision, and the node is still NotReady.
func (r *rig) down(t *testing.T, n int) {
	t.Helper()
	r.isReady(t, n, false)
	r.advance(t, n, 11*time.Minute)
	r.joinsAgain(t, n)
	if i := r.get(t, n); i.Status.Phase != v1alpha1.PhaseConfirming || i.Status.DesiredRevision != i.Status.HeldRevision {
		t.Fatalf("the host should be joined again at its previous revision: %+v", i.Status)
	}
}

// If a node is down, a revision that is published later, such as a new setting or release, may repair it.
func TestANodeThatStaysDownGoesToTheRevisionThatIsDesiredLater(t *testing.T) {
	t.Parallel()
	closed := []v1alpha1.MaintenanceWindow{{Start: "0 22 * * 6", Duration: metav1.Duration{Duration: time.Hour}}}
	for name, test := range map[string]struct {
		arrange func(t *testing.T, r *rig)
		file    string // a change of this file affects no pods
		stays   bool
	}{
		"with a slot":               {},
		"without an effect on pods": {file: "another"},
		"not in a closed window": {stays: true, arrange: func(t *testing.T, r *rig) {
			t.Helper()
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaintenanceWindows = closed })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, desire := calm(t, 1, 2)
			held := r.version
			if test.arrange != nil {
				test.arrange(t, r)
			}
			r.down(t, 1)
			if test.file != "" {
				desire("before", test.file)
			} else {
				desire("after", "")
			}
			r.advance(t, 1, time.Minute)
			if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; at != held {
				t.Fatalf("the node may still become Ready, but its daemon was told revision %q", at)
			}
			r.advance(t, 1, 11*time.Minute)
			r.joinsAgain(t, 1)
			at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]
			if (at == r.version) == test.stays {
				t.Fatalf("the daemon was told revision %q, the desired revision is %q, the previous revision %q",
					at, r.version, held)
			}
			r.isReady(t, 1, true)
			r.annotate(t, 1, contract.RevisionAnnotation, at)
			r.advance(t, 1, time.Minute)
			r.joinsAgain(t, 1)
			i := r.get(t, 1)
			if i.Status.Phase != v1alpha1.PhaseReady || i.Status.HeldRevision != at || i.Status.FailedRevision != "" {
				t.Errorf("at the end, the status is %+v", i.Status)
			}
		})
	}
}

// A node was already down before a revision was published, and is down at the revision as well. This must not count as
// a failure of the revision, and the rollout to other nodes must continue.
func TestANodeThatWasDownBeforeBlamesNoRevision(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	held := r.version
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2)) })
	r.down(t, 1)
	desire("after", "")
	r.advance(t, 1, 11*time.Minute)
	r.joinsAgain(t, 1)
	for range 12 {
		r.advance(t, 1, time.Minute)
	}
	r.joinsAgain(t, 1)
	i := r.get(t, 1)
	if i.Status.FailedRevision != "" || i.Status.DesiredRevision != held || i.Status.HasSlot() {
		t.Fatalf("the node did not become Ready at the new revision either: %+v", i.Status)
	}
	r.reconcile(t, 2)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	for range 3 * 24 {
		r.advance(t, 1, 20*time.Minute)
		r.joinsAgain(t, 1)
	}
	if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; at != held {
		t.Errorf("the daemon was told revision %q a second time", at)
	}
	cure := r.version
	desire("cure", "")
	r.advance(t, 1, 20*time.Minute)
	r.joinsAgain(t, 1)
	if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; at != r.version {
		t.Errorf("a third revision is desired, but the daemon was told %q (previous %q, second %q): %+v",
			at, held, cure, r.get(t, 1).Status)
	}
}

// For a revision that needs no slot, the operator may be killed after it requested the revision from a node and before
// it saved this in the status.
func TestARevisionThatWasRequestedIsNotTakenBackForTheNextOne(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	desire("before", "another")
	told := r.version
	r.annotate(t, 1, contract.DesiredRevisionAnnotation, told)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)) })
	desire("after", "another")
	r.restart(t)
	r.reconcile(t, 1)
	if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; at != told {
		t.Errorf("the daemon was told revision %q, and is told %q now, before the node has a slot", told, at)
	}
}

// The operator may be killed after it requested a revision in a join and before it saved this in the status. If the
// daemon has applied this revision, a request for the older revision in the status would cost a slot.
func TestANodeThatHasWhatItWasToldIsNotToldTheRevisionOfTheStatus(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	desire("after", "")
	r.annotate(t, 1, contract.DesiredRevisionAnnotation, r.version)
	r.annotate(t, 1, contract.RevisionAnnotation, r.version)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)) })
	desire("next", "")
	r.restart(t)
	told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; at != told || i.Status.DesiredRevision != told {
		t.Errorf("the daemon has revision %q, is told %q, and the status says %q", told, at, i.Status.DesiredRevision)
	}
}

// The host can't be reached over SSH. If its daemon applies the request late, no join must be needed.
func TestADaemonThatAppliesASettingLateNeedsNoJoin(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1)
	desire("after", "")
	r.slow = hosttestUnreachable
	for range 15 {
		r.advance(t, 1, time.Minute)
	}
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonUnreachable) {
		t.Fatalf("the host should be joined again: %+v", i.Status)
	}
	r.annotate(t, 1, contract.RevisionAnnotation, r.version)
	for range 10 {
		r.advance(t, 1, time.Minute)
	}
	if i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady); i.Status.HeldRevision != r.version ||
		i.Status.HasSlot() || r.node(t, 1).Spec.Unschedulable {
		t.Errorf("after the daemon applied the revision, the status is %+v", i.Status)
	}
}

// goesThere simulates a node that is still down after a join at its previous revision. Then the operator joins its host
// at the desired revision.
func (r *rig) goesThere(t *testing.T, n int, desire func(kubelet, file string)) (held string) {
	t.Helper()
	held = r.version
	r.down(t, n)
	desire("after", "")
	r.advance(t, n, 11*time.Minute)
	r.joinsAgain(t, n)
	if at := r.node(t, n).Annotations[contract.DesiredRevisionAnnotation]; at != r.version {
		t.Fatalf("the daemon was told revision %q", at)
	}
	return held
}

// A change that affects no pods must not restart a running join over and over.
func TestARevisionThatNobodyFeelsDoesNotDisruptAJoinThatFollows(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	held := r.goesThere(t, 1, desire)
	desire("after", "another")
	dials := r.machine(1).Dials()
	for range 4 {
		r.advance(t, 1, 11*time.Minute)
		r.joinsAgain(t, 1)
	}
	i := r.get(t, 1)
	if more := r.machine(1).Dials() - dials; more > 4 || i.Status.HasSlot() && i.Status.Upgrade().Revision != r.version {
		t.Errorf("the host was dialled %d times, the status is %+v (previous revision %s)", more, i.Status, held)
	}
}

// If the Node is missing, there are no pods to disrupt. So if the host can't join at its previous revision, it may join
// at the desired one.
func TestAHostWhoseNodeIsGoneFollowsWhereItFailsAtTheRevisionThatItHeld(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	failed := contract.NewProblem(contract.ReasonServiceFailed, "kubelet ended")
	r.machine(1).Fail(string(contract.VerbBootstrap), failed)
	if err := r.api.Delete(t.Context(), r.node(t, 1)); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseBootstrapping, "", contract.ReasonServiceFailed)
	desire("after", "")
	for range 3 {
		r.advance(t, 1, 20*time.Minute)
		if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonServiceFailed) {
			t.Fatalf("after the failure, the status is %+v", i.Status)
		}
	}
	other := r.version
	r.machine(1).Fail(string(contract.VerbBootstrap), nil)
	desire("cure", "")
	r.advance(t, 1, 20*time.Minute)
	if i := r.get(t, 1); i.Status.Upgrade() == nil || i.Status.Upgrade().Revision != r.version || !i.Status.HasSlot() {
		t.Fatalf("the host should go to revision %q after %q, the status is %+v", r.version, other, i.Status)
	}
	r.register(t, 1, "")
	r.joinsAgain(t, 1)
	r.register(t, 1, r.version)
	r.reconcile(t, 1)
	if i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady); i.Status.HeldRevision != r.version ||
		i.Status.FailedRevision != "" || i.Status.HasSlot() {
		t.Errorf("at the end, the status is %+v", i.Status)
	}
}

// If such a host loses its slot because of a pause, the host returns to its previous revision. This must not count as a
// failure of the desired revision.
func TestAJoinThatFollowsAndIsPausedBlamesNoRevision(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	held := r.goesThere(t, 1, desire)
	for _, paused := range []bool{true, false} {
		r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = paused })
		r.reconcile(t, 1)
	}
	failed := r.get(t, 2)
	failed.Status.FailedRevision = r.version
	if err := r.api.Status().Update(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	for range 14 {
		r.advance(t, 1, time.Minute)
		r.joinsAgain(t, 1)
	}
	i := r.get(t, 1)
	if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; i.Status.FailedRevision != "" || at != held {
		t.Errorf("the rollout is halted, but the daemon is told revision %q (previous %q): %+v", at, held, i.Status)
	}
}

// A node that is Ready at its new revision must keep this revision, even if another node has got the slot in the
// meantime.
func TestANodeThatIsReadyAtTheRevisionThatItFollowsStaysThere(t *testing.T) {
	t.Parallel()
	const reportsLate = "with a daemon that reports a moment later"
	const failedBefore = "with one that does, after an attempt that failed"
	noBudget := func(t *testing.T, r *rig) {
		t.Helper()
		r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)) })
	}
	for name, arrange := range map[string]func(t *testing.T, r *rig, i *v1alpha1.WindowsInstance){
		"paused until then": func(*testing.T, *rig, *v1alpha1.WindowsInstance) {},
		reportsLate:         func(t *testing.T, r *rig, _ *v1alpha1.WindowsInstance) { t.Helper(); noBudget(t, r) },
		failedBefore: func(t *testing.T, r *rig, i *v1alpha1.WindowsInstance) {
			t.Helper()
			noBudget(t, r)
			i.Status.Failures = 1
		},
		"with a failure at another": func(_ *testing.T, r *rig, i *v1alpha1.WindowsInstance) {
			i.Status.Failures = 1
			i.Status.FailedRevision = "another"
		},
		"with an attempt that failed": func(_ *testing.T, _ *rig, i *v1alpha1.WindowsInstance) {
			i.Status.Failures = 1
		},
		"with a handover whose answer was lost": func(_ *testing.T, _ *rig, i *v1alpha1.WindowsInstance) {
			i.Status.Phase, i.Status.Failures = v1alpha1.PhaseHandingOver, 1
			i.Status.BootstrapCredentials = []string{"JTI=token"}
		},
		"where the rollout is halted": func(t *testing.T, r *rig, _ *v1alpha1.WindowsInstance) {
			t.Helper()
			failed := r.get(t, 2)
			failed.Status.FailedRevision = r.version
			if err := r.api.Status().Update(t.Context(), failed); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, desire := calm(t, 1, 2)
			r.goesThere(t, 1, desire)
			r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
			r.reconcile(t, 1)
			i := r.get(t, 1)
			arrange(t, r, i)
			if err := r.api.Status().Update(t.Context(), i); err != nil || i.Status.HasSlot() {
				t.Fatalf("%v, slot %+v", err, i.Status.Slot)
			}
			r.restart(t)
			r.isReady(t, 1, true)
			isLate := name == reportsLate || name == failedBefore
			if !isLate {
				r.annotate(t, 1, contract.RevisionAnnotation, r.version)
			}
			r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
			for range 6 {
				if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; at != r.version {
					t.Fatalf("the daemon is told revision %q: %+v", at, r.get(t, 1).Status)
				}
				r.advance(t, 1, time.Minute)
				r.joinsAgain(t, 1)
				if isLate {
					r.annotate(t, 1, contract.RevisionAnnotation, r.version)
				}
			}
			r.annotate(t, 1, contract.RevisionAnnotation, r.version)
			r.joinsAgain(t, 1)
			i = r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
			if i.Status.HeldRevision != r.version || i.Status.HasSlot() || r.node(t, 1).Spec.Unschedulable ||
				i.Status.FailedRevision != "" {
				t.Errorf("at the end, the status is %+v", i.Status)
			}
		})
	}
}

// If a setting breaks SSH as well, the operator must not retry the join forever.
func TestAnUnresponsiveDaemonWhoseHostCannotBeJoinedFailedAtTheSetting(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	held := r.version
	desire("after", "")
	r.slow = hosttestUnreachable
	for range 40 {
		r.advance(t, 1, time.Minute)
	}
	i := r.get(t, 1)
	if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; i.Status.FailedRevision == "" || at != held {
		t.Fatalf("the daemon is told revision %q: %+v", at, i.Status)
	}
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2)) })
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRolloutHalted)
}

// While the budget is used up, such a host is joined at its previous revision. Later, it changes to the desired
// revision.
func TestAHostThatFindsTheBudgetFullGoesToTheDesiredRevisionLater(t *testing.T) {
	t.Parallel()
	r, desire := calm(t, 1, 2)
	held := r.version
	r.down(t, 1)
	desire("after", "")
	r.hasSlot(t, 2, true)
	for range 15 {
		r.advance(t, 1, time.Minute)
	}
	if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; at != held {
		t.Fatalf("the host has no slot, but its daemon was told revision %q", at)
	}
	r.hasSlot(t, 2, false)
	for range 15 {
		r.advance(t, 1, time.Minute)
	}
	r.joinsAgain(t, 1)
	request := contract.BootstrapRequest{}
	if _, err := r.machine(1).Request(contract.VerbBootstrap, &request); err != nil {
		t.Fatal(err)
	}
	if at := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; at != r.version || request.Revision != at {
		t.Errorf("the host was told revision %q, its daemon %q: %+v", request.Revision, at, r.get(t, 1).Status)
	}
}
