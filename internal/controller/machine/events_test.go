package machine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// provisioned creates a Machine with an address and a host.
func (q *queue) provisioned(name, address string) *machinev1beta1.Machine {
	q.t.Helper()
	m := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: name, UID: types.UID(name),
			Labels: windows()},
		Status: machinev1beta1.MachineStatus{Phase: ptr.To(machinev1beta1.PhaseProvisioned),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
	if err := q.api.Create(q.t.Context(), m); err != nil {
		q.t.Fatal(err)
	}
	return m
}

// wrong returns the problems for the status of the settings, and whether the controller of the settings was woken.
func (q *queue) wrong() (all []string, woken bool) {
	for _, p := range q.options.Problems.Problems() {
		all = append(all, p.Error())
	}
	select {
	case <-q.options.Problems.Changed():
		woken = true
	default:
	}
	return all, woken
}

// An event is deleted after an hour. After that, the problem must still be reported, because the Machine still is not a
// node.
func TestWhyAMachineBecomesNoNodeStaysKnownAfterItsEventExpired(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.platform = contract.PlatformVSphere
	m := q.provisioned("winworker-0123456789", "10.0.0.2")
	q.after(0, 1, 0)
	if all, woken := q.wrong(); len(all) != 1 || !woken || !strings.Contains(all[0], m.Name) ||
		!strings.Contains(all[0], "W106 MachineNameInvalid") {
		t.Errorf("at once: %q, woken %v", all, woken)
	}
	q.after(2*time.Hour, 1, 0)
	if all, woken := q.wrong(); len(all) != 1 || woken || !strings.Contains(all[0], m.Name) {
		t.Errorf("after the event expired: %q, triggered %v", all, woken)
	}
	if err := q.api.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	q.after(time.Second, 1, 0)
	if all, woken := q.wrong(); len(all) != 0 || !woken {
		t.Errorf("without the Machine: %q, triggered %v", all, woken)
	}
}

func TestAMachineWhoseAddressIsNotGivenUpStaysKnown(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "a")
	q.after(0, 0, time.Minute)
	if all, _ := q.wrong(); len(all) != 0 {
		t.Errorf("before the waiting time is over: %q", all)
	}
	q.after(time.Minute, 1, 0)
	if all, woken := q.wrong(); len(all) != 1 || !woken || !strings.Contains(all[0], "Machine m ") {
		t.Errorf("after the waiting time: %q, triggered %v", all, woken)
	}
	q.gone("a")
	q.after(time.Second, 1, 0)
	if all, woken := q.wrong(); len(all) != 0 || !woken {
		t.Errorf("after the address was released: %q, triggered %v", all, woken)
	}
}

func TestOfMachinesThatBecomeNoNodesForOneReasonFewAreNamed(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "a")
	q.platform = contract.PlatformVSphere
	q.after(0, 0, time.Minute)
	for n := range 10 {
		q.provisioned(fmt.Sprintf("winworker-012345678%d", 9-n), "10.0.0.2")
	}
	q.after(time.Minute, 11, 0)
	all, _ := q.wrong()
	if len(all) != 2 || !strings.Contains(all[0], "W103") || !strings.Contains(all[1], "W106") {
		t.Fatalf("%q", all)
	}
	for part, want := range map[string]bool{"winworker-0123456780": true, "winworker-0123456782": true,
		"winworker-0123456783": false, "; and 7 more": true} {
		if strings.Contains(all[1], part) != want {
			t.Errorf("%q, want %q in it: %v", all[1], part, want)
		}
	}
}

// booting creates a Machine that has a name but no address yet, like vSphere's Machines before VMware Tools run.
func (q *queue) booting(name string) *machinev1beta1.Machine {
	q.t.Helper()
	m := q.provisioned(name, "")
	m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: name}}
	if err := q.api.Update(q.t.Context(), m); err != nil {
		q.t.Fatal(err)
	}
	return m
}

// knows checks that there are exactly these problems for the status of the settings. Each part is a text in a problem.
func (q *queue) knows(when string, parts ...string) {
	q.t.Helper()
	all, _ := q.wrong()
	if len(all) != len(parts) {
		q.t.Fatalf("%s: %q", when, all)
	}
	for i, part := range parts {
		if !strings.Contains(all[i], part) {
			q.t.Errorf("%s: %q, want %q", when, all[i], part)
		}
	}
}

func TestAMachineThatBootsIsNoProblemYet(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	m := q.booting("winworker-0")
	q.after(0, 1, nameRetry)
	q.knows("at once")
	q.after(5*time.Minute, 1, nameRetry)
	q.knows("while it may boot")
	m.Status.Addresses = append(m.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "other"})
	if err := q.api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	q.after(16*time.Minute, 1, nameRetry)
	q.knows("when it has had its time", "W107")
	m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}}
	if err := q.api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	q.after(time.Second, 1, 0)
	q.knows("with an address")
}

func TestANodeWhoseNameIsNotFoundIsNoMachineThatBecomesNone(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	m := q.booting("winworker-0")
	m.Status.NodeRef = &corev1.ObjectReference{Name: "node"}
	if err := q.api.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	q.after(0, 1, nameRetry)
	q.after(time.Hour, 1, nameRetry)
	q.knows("after an hour")
}

func TestAnAddressThatTwoMachinesHaveIsAProblemWhenItLasts(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.after(0, 0, 0)
	q.provisioned("n", "10.0.0.1")
	q.after(0, 1, time.Minute)
	q.knows("at once")
	q.after(20*time.Second, 1, 40*time.Second)
	q.after(40*time.Second, 1, 0)
	q.knows("when it has lasted", "W103")
}

// While the platform is unknown, the problems of Machines must still be reported.
func TestWhatIsWrongWithMachinesStaysKnownWhileThePlatformIsNot(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "a")
	q.platform = contract.PlatformVSphere
	q.provisioned("winworker-0123456789", "10.0.0.2")
	q.after(0, 1, time.Minute)
	q.after(time.Minute, 2, 0)
	q.knows("at first", "W103", "W106")
	q.unknown = errors.New("the cluster is upgraded")
	q.after(time.Minute, 2, 0)
	q.knows("while the platform is unknown", "W103", "W106")
	q.unknown = nil
	q.after(time.Minute, 2, 0)
	q.knows("afterwards", "W103", "W106")
}
