package instance

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// toCheck returns an instance whose host is only checked and doesn't join.
func toCheck(n int, address string) []client.Object {
	all := listed(n)
	for _, o := range all {
		if i, ok := o.(*v1alpha1.WindowsInstance); ok {
			i.Spec.Source, i.Spec.PreflightOnly, i.Spec.Address = nil, true, address
		}
	}
	return all
}

func TestA75_AHostThatIsCheckedStaysAsItWas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host func(m *hosttest.Machine)
		want string
		code contract.Reason
	}{
		"a good one": {func(*hosttest.Machine) {}, "True Passed", contract.ReasonPreflightOnly},
		"a host that refuses the key": {func(m *hosttest.Machine) {
			m.Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonKeyRefused, "no"))
		}, "False KeyRefused", contract.ReasonKeyRefused},
		"one with a bad build": {func(m *hosttest.Machine) {
			m.Answer(contract.VerbPreflight, contract.PreflightAnswer{Facts: m.Facts(),
				Problems: []contract.Problem{{Reason: contract.ReasonBuildUnsupported, Detail: "old"}}})
		}, "False BuildUnsupported", contract.ReasonBuildUnsupported},
		"one whose name no node can have": {func(m *hosttest.Machine) {
			m.Change(func(f *contract.HostFacts) { f.Hostname = "a_b" })
		}, "False HostnameInvalid", contract.ReasonHostnameInvalid},
		"one whose address is a pod's": {func(m *hosttest.Machine) {
			m.Change(func(f *contract.HostFacts) { f.NodeIP = "10.244.7.9" })
		}, "False HostInClusterNetwork", contract.ReasonHostInClusterNetwork},
		"a host whose connection breaks": {func(m *hosttest.Machine) {
			m.Fail(string(contract.VerbPreflight), contract.NewProblem(contract.ReasonConnectionLost, "gone"))
		}, "False ConnectionLost", contract.ReasonConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, toCheck(1, "10.0.0.1")...)
			c.host(r.machine(1))
			for range 3 {
				r.reconcile(t, 1)
			}
			i := r.get(t, 1)
			if got := condition(i, v1alpha1.ConditionPreflightPassed); got != c.want || i.Status.Reason() != string(c.code) ||
				!strings.Contains(i.Status.Message(), c.code.Code()) || fixOf(i) == "" || i.Status.Phase != v1alpha1.PhasePreflight {
				t.Errorf("%s, status %+v", got, i.Status)
			}
			if got := condition(i, v1alpha1.ConditionProgressing); got != "False "+string(c.code) {
				t.Errorf("a host that is only checked is shown as progressing: %s", got)
			}
			if i.Status.NodeName != "" || i.Status.HostKey != "" || i.Status.HasSlot() || i.Status.Failures > 0 {
				t.Errorf("the instance holds something: %+v", i.Status)
			}
			m := r.machine(1)
			if _, claimed := r.parts.Claims.Owner("win-a"); claimed || m.Uploaded() || m.Open() != 0 || m.Dials() != 1 ||
				slices.ContainsFunc(m.Calls(), func(v contract.Verb) bool { return v != contract.VerbPreflight }) {
				t.Errorf("claimed %v, uploaded %v, %d open, %d dials, calls %v", claimed, m.Uploaded(), m.Open(), m.Dials(),
					m.Calls())
			}
			r.clock = r.clock.Add(2 * time.Hour)
			r.reconcile(t, 1) // deletes the instance
			if r.exists(t, 1) {
				r.reconcile(t, 1)
			}
			if r.exists(t, 1) || m.Dials() != 1 {
				t.Errorf("the instance is not deleted, or its host was dialled again (%d)", m.Dials())
			}
		})
	}
}

func TestA75_AHostThatAnotherInstanceHasIsNotDisrupted(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(listed(1), toCheck(2, "10.0.0.1")...)...)
	r.join(t, 1)
	before := r.machine(1).Dials()
	r.reconcile(t, 2)
	checked := r.get(t, 2)
	if got := condition(checked, v1alpha1.ConditionPreflightPassed); got != "False HostListed" ||
		r.machine(1).Dials() != before || !strings.Contains(checked.Status.Message(), "in phase Ready") {
		t.Errorf("%s after %d connections", got, r.machine(1).Dials()-before)
	}
	// The second instance has a different address of the same host. The operator notices this from the host's identity.
	// The program that was uploaded to this host belongs to the first instance.
	other := newRig(t, append(listed(1), toCheck(2, "10.0.0.2")...)...)
	other.join(t, 1)
	other.machine(2).Change(func(f *contract.HostFacts) { f.MachineID = other.machine(1).Facts().MachineID })
	other.reconcile(t, 2)
	if got := condition(other.get(t, 2), v1alpha1.ConditionPreflightPassed); got != "False HostDuplicate" ||
		!other.machine(2).Uploaded() || other.machine(2).Open() != 0 {
		t.Errorf("%s, uploaded %v", got, other.machine(2).Uploaded())
	}
}

func TestA75_AProgramThatStaysOnACheckedHostIsSaid(t *testing.T) {
	t.Parallel()
	r := newRig(t, toCheck(1, "10.0.0.1")...)
	r.machine(1).Fail(hosttest.RemovingUpload, errors.New("in use"))
	r.reconcile(t, 1)
	if got := condition(r.get(t, 1), v1alpha1.ConditionPreflightPassed); got != "False InternalError" {
		t.Error(got)
	}
}

func TestA75_ACheckWaitsForTheKeyAndTakesNoSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t, toCheck(1, "10.0.0.1")...)
	r.noKey = contract.NewProblem(contract.ReasonPrivateKeyMissing, "none")
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonPrivateKeyMissing) ||
		condition(i, v1alpha1.ConditionPreflightPassed) != condition(i, "none") {
		t.Errorf("status %+v", i.Status)
	}
	for n := range 100 { // no join slot is left
		r.parts.Slots.Acquire(client.ObjectKeyFromObject(toCheck(n+10, "x")[0]))
	}
	r.noKey = nil
	r.reconcile(t, 1)
	if got := condition(r.get(t, 1), v1alpha1.ConditionPreflightPassed); got != "True Passed" {
		t.Error(got)
	}
}
