package instance

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// rotate replaces the private key with the key of this name.
func (r *rig) rotate(name string) { r.key = credential.Key{PEM: []byte(name), Hash: "hash of " + name} }

// joined returns a cluster whose first host has joined and accepted key a.
func joined(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, listed(1)...)
	r.rotate("a")
	r.machine(1).Authorize("a")
	r.join(t, 1)
	return r
}

// shown returns the hash of the accepted key, as it is written on the Node.
func (r *rig) shown(t *testing.T, n int) string {
	t.Helper()
	node := &corev1.Node{}
	if err := r.api.Get(t.Context(), types.NamespacedName{Name: r.machine(n).Facts().Hostname}, node); err != nil {
		t.Fatal(err)
	}
	return node.Annotations[contract.PublicKeyHashAnnotation]
}

func TestANewKeyThatIsLetInIsTriedOnceAndShown(t *testing.T) {
	t.Parallel()
	r := joined(t)
	if i := r.get(t, 1); i.Status.PublicKeyHash != "hash of a" ||
		condition(i, v1alpha1.ConditionKeyAuthorized) != "True KeyAccepted" || r.shown(t, 1) != "hash of a" {
		t.Fatalf("status %+v; the Node shows %q", i.Status, r.shown(t, 1))
	}
	r.machine(1).Authorize("a", "b")
	r.rotate("b")
	for range 3 {
		r.reconcile(t, 1)
	}
	i := r.get(t, 1)
	if i.Status.PublicKeyHash != "hash of b" || i.Status.KeyRefusal != nil ||
		condition(i, v1alpha1.ConditionKeyAuthorized) != "True KeyAccepted" || r.shown(t, 1) != "hash of b" {
		t.Errorf("status %+v; the Node shows %q", i.Status, r.shown(t, 1))
	}
	if r.machine(1).Dials() != 2 || r.machine(1).Open() != 0 || len(r.machine(1).Calls()) != 3 {
		t.Errorf("%d connections, %d open, calls %v", r.machine(1).Dials(), r.machine(1).Open(), r.machine(1).Calls())
	}
}

func TestARefusedKeyIsReportedAndTheNodeServesOn(t *testing.T) {
	t.Parallel()
	r := joined(t)
	r.rotate("b")
	dials := r.machine(1).Dials()
	for n, seconds := range []int{10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800} {
		wait := time.Duration(seconds) * time.Second
		if result := r.reconcile(t, 1); result.RequeueAfter != wait {
			t.Fatalf("try %d: retried after %s", n+1, result.RequeueAfter)
		}
		if result := r.reconcile(t, 1); result.RequeueAfter != wait {
			t.Fatalf("try %d, reconciled again: retried after %s", n+1, result.RequeueAfter)
		}
		if got := r.machine(1).Dials() - dials; got != n+1 {
			t.Fatalf("after try %d there were %d connections", n+1, got)
		}
		r.clock = r.clock.Add(wait)
	}
	i := r.get(t, 1)
	if i.Status.Phase != v1alpha1.PhaseReady || condition(i, v1alpha1.ConditionReady) != "True NodeReady" ||
		condition(i, v1alpha1.ConditionProgressing) != "False KeyNotAuthorized" || i.Status.Failures != 0 {
		t.Errorf("a serving node shows %+v", i.Status)
	}
	if condition(i, v1alpha1.ConditionKeyAuthorized) != "False KeyNotAuthorized" || codeOf(i) != "W208" ||
		!strings.Contains(fixOf(i), "authorized_keys") {
		t.Errorf("the status of the key is %+v", i.Status)
	}
	if refusal := i.Status.KeyRefusal; i.Status.PublicKeyHash != "hash of a" || refusal == nil ||
		refusal.PublicKeyHash != "hash of b" || !refusal.Time.After(refusal.Since.Time) ||
		r.shown(t, 1) != "hash of a" {
		t.Errorf("status %+v", i.Status)
	}
	r.reconcile(t, 1)
	before := r.machine(1).Dials()
	r.machine(1).Authorize("b")
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Labels = map[string]string{"a": "b"} })
	r.reconcile(t, 1) // the change of the spec ends the pause of half an hour
	if i = r.get(t, 1); r.machine(1).Dials() != before+1 || i.Status.PublicKeyHash != "hash of b" ||
		codeOf(i) != "W705" || condition(i, v1alpha1.ConditionKeyAuthorized) != "True KeyAccepted" {
		t.Errorf("%d connections; status %+v", r.machine(1).Dials()-before, i.Status)
	}
}

func TestA81_AChangedWayIntoAReadyHostIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	refused := contract.NewProblem(contract.ReasonKeyRefused, "no")
	for name, test := range map[string]struct {
		change func(*v1alpha1.WindowsInstance)
		answer error
		code   string
		field  string
	}{
		"a user name that is right": {func(i *v1alpha1.WindowsInstance) { i.Spec.Username = "b" }, nil, "W705", ""},
		"a user name that is wrong": {func(i *v1alpha1.WindowsInstance) { i.Spec.Username = "b" }, refused, "W202",
			"spec.username"},
		"a port that is wrong": {func(i *v1alpha1.WindowsInstance) { i.Spec.Port = 2222 }, unreachable(), "W201",
			"spec.port"},
		"a host key that is wrong": {func(i *v1alpha1.WindowsInstance) { i.Spec.HostKey = "ssh-ed25519 AAAAother" }, nil,
			"W203", "spec.hostKey"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := joined(t)
			r.reconcile(t, 1)
			was, dials := r.get(t, 1).Spec, r.machine(1).Dials()
			if test.answer != nil {
				r.machine(1).Fail(hosttest.Dialling, test.answer)
			}
			r.edit(t, 1, test.change)
			for range 3 {
				r.reconcile(t, 1)
			}
			i := r.get(t, 1)
			if r.machine(1).Dials() != dials+1 || codeOf(i) != test.code ||
				!strings.Contains(i.Status.Message(), test.field) || i.Status.Phase != v1alpha1.PhaseReady ||
				condition(i, v1alpha1.ConditionReady) != "True NodeReady" {
				t.Fatalf("%d connections; status %+v", r.machine(1).Dials()-dials, i.Status)
			}
			r.machine(1).Fail(hosttest.Dialling, nil)
			r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec = was })
			r.reconcile(t, 1)
			if i = r.get(t, 1); codeOf(i) != "W705" || i.Status.KeyRefusal != nil ||
				condition(i, v1alpha1.ConditionKeyAuthorized) != "True KeyAccepted" {
				t.Errorf("after the repair, the status is %+v", i.Status)
			}
		})
	}
}

// requestKey requests a try of the key on the first host, as the machine controller does.
func (r *rig) requestKey(t *testing.T) {
	t.Helper()
	r.clock = r.clock.Add(time.Second)
	i := r.get(t, 1)
	metav1.SetMetaDataAnnotation(&i.ObjectMeta, contract.TryKeyAnnotation, r.clock.UTC().Format(time.RFC3339))
	if err := r.api.Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

func TestA18_AHostIsAskedAtOnceWhenItsAnswerIsRequested(t *testing.T) {
	t.Parallel()
	r := joined(t)
	r.rotate("b")
	r.reconcile(t, 1)
	before := r.machine(1).Dials()
	r.requestKey(t)
	r.reconcile(t, 1)
	refusal := r.get(t, 1).Status.KeyRefusal
	if r.machine(1).Dials() != before+1 || !refusal.Time.Time.Equal(r.clock) || !refusal.Since.Time.Before(r.clock) {
		t.Fatalf("%d connections; refusal %+v", r.machine(1).Dials()-before, refusal)
	}
	r.reconcile(t, 1) // not tried again, because the host has answered
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	refused := r.clock
	r.requestKey(t)
	r.reconcile(t, 1)
	r.reconcile(t, 1)
	refusal = r.get(t, 1).Status.KeyRefusal
	if r.machine(1).Dials() != before+2 || !refusal.Time.Time.Equal(refused) {
		t.Errorf("%d connections; refusal %+v", r.machine(1).Dials()-before, refusal)
	}
}

func TestA18_AHostThatJoinsIsAskedAtOnceWhenItsAnswerIsRequested(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.rotate("b")
	r.machine(1).Authorize("a")
	for range 4 {
		r.reconcile(t, 1)
		r.clock = r.clock.Add(time.Minute)
	}
	r.reconcile(t, 1)
	before := r.machine(1).Dials()
	r.requestKey(t)
	for range 2 {
		r.reconcile(t, 1)
	}
	if r.machine(1).Dials() != before+1 {
		t.Errorf("%d connections, want one; status %+v", r.machine(1).Dials()-before, r.get(t, 1).Status)
	}
}

func TestAKeyThatComesBackIsKnown(t *testing.T) {
	t.Parallel()
	r := joined(t)
	r.rotate("b")
	r.reconcile(t, 1)
	r.restart(t)
	r.rotate("a")
	dials := r.machine(1).Dials()
	r.reconcile(t, 1)
	if i := r.get(t, 1); r.machine(1).Dials() != dials || i.Status.KeyRefusal != nil ||
		i.Status.PublicKeyHash != "hash of a" || condition(i, v1alpha1.ConditionKeyAuthorized) != "True KeyAccepted" {
		t.Errorf("%d connections; status %+v", r.machine(1).Dials()-dials, i.Status)
	}
	r.rotate("b") // the old result for this key may be outdated, so the key is tried again
	r.reconcile(t, 1)
	if i := r.get(t, 1); r.machine(1).Dials() != dials+1 || i.Status.KeyRefusal == nil {
		t.Errorf("%d connections; status %+v", r.machine(1).Dials()-dials, i.Status)
	}
}

func TestAHostThatCanNotBeAskedRefusesNothing(t *testing.T) {
	t.Parallel()
	r := joined(t)
	r.rotate("b")
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if condition(i, v1alpha1.ConditionKeyAuthorized) != "Unknown Unreachable" ||
		condition(i, v1alpha1.ConditionReady) != "True NodeReady" || codeOf(i) != "W705" ||
		i.Status.KeyRefusal != nil {
		t.Errorf("status %+v", i.Status)
	}
}

func TestWithoutAKeyNobodyIsAsked(t *testing.T) {
	t.Parallel()
	r := joined(t)
	r.rotate("b")
	r.noKey = contract.NewProblem(contract.ReasonPrivateKeyMissing, "none")
	dials := r.machine(1).Dials()
	if result := r.reconcile(t, 1); result.RequeueAfter != 0 || r.machine(1).Dials() != dials ||
		r.get(t, 1).Status.KeyRefusal != nil {
		t.Errorf("asked %d times, status %+v", r.machine(1).Dials()-dials, r.get(t, 1).Status)
	}
}

func TestFewHostsAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	r := joined(t)
	r.trials.SetLimit(1)
	r.trials.Acquire(types.NamespacedName{Name: "another"})
	r.rotate("b")
	dials := r.machine(1).Dials()
	if result := r.reconcile(t, 1); result.RequeueAfter != trialRetry || r.machine(1).Dials() != dials {
		t.Errorf("retried after %s, %d connections", result.RequeueAfter, r.machine(1).Dials()-dials)
	}
	r.trials.Release(types.NamespacedName{Name: "another"})
	if len(r.woken) != 1 {
		t.Fatal("the next host was not triggered")
	}
	r.reconcile(t, 1)
	if r.machine(1).Dials() != dials+1 || r.trials.Held() != 0 {
		t.Errorf("%d connections, %d slots held", r.machine(1).Dials()-dials, r.trials.Held())
	}
}

func TestAHostThatNeedsNotBeAskedAnyMoreLeavesItsTurnToOthers(t *testing.T) {
	t.Parallel()
	for name, instead := range map[string]func(t *testing.T, r *rig){
		"it is joined again": func(t *testing.T, r *rig) {
			t.Helper()
			if err := r.api.Delete(t.Context(), r.node(t, 1)); err != nil {
				t.Fatal(err)
			}
		},
		"its instance is paused": func(t *testing.T, r *rig) {
			t.Helper()
			r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
		},
		"it is being removed, and waits for its slot": func(t *testing.T, r *rig) {
			t.Helper()
			none := intstr.FromInt32(0)
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = &none })
			r.remove(t, 1)
		},
		"the key is the earlier one again": func(t *testing.T, r *rig) { t.Helper(); r.rotate("a") },
		"there is no key": func(t *testing.T, r *rig) {
			t.Helper()
			r.noKey = contract.NewProblem(contract.ReasonPrivateKeyMissing, "none")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := joined(t)
			r.trials.SetLimit(1)
			r.trials.Acquire(types.NamespacedName{Name: "another"})
			r.rotate("b")
			r.reconcile(t, 1)
			r.trials.Acquire(types.NamespacedName{Name: "the next"})
			instead(t, r)
			r.reconcile(t, 1)
			r.trials.Release(types.NamespacedName{Name: "another"})
			if !r.trials.Acquire(types.NamespacedName{Name: "the next"}) {
				t.Errorf("%d hosts are asked, and the next one does not get its turn; status %+v", r.trials.Held(),
					r.get(t, 1).Status)
			}
		})
	}
}

func TestAHostThatJoinsShowsHowItTakesTheKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.rotate("b")
	r.machine(1).Authorize("a")
	for range 3 {
		r.reconcile(t, 1)
		r.clock = r.clock.Add(time.Minute)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	refusal := r.get(t, 1).Status.KeyRefusal
	if refusal == nil || refusal.PublicKeyHash != "hash of b" || !refusal.Since.Time.Equal(start) ||
		!refusal.Time.Time.Equal(start.Add(2*time.Minute)) {
		t.Fatalf("refusal %+v", refusal)
	}
	r.rotate("c") // a new key is tried from the beginning
	r.reconcile(t, 1)
	if refusal = r.get(t, 1).Status.KeyRefusal; refusal.PublicKeyHash != "hash of c" ||
		!refusal.Since.Time.After(start) {
		t.Errorf("refusal %+v", refusal)
	}
	r.rotate("a")
	r.clock = r.clock.Add(time.Minute)
	r.join(t, 1)
	if i := r.get(t, 1); i.Status.KeyRefusal != nil || i.Status.PublicKeyHash != "hash of a" {
		t.Errorf("status %+v", i.Status)
	}
}
