package instance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// origins returns the same state for every Machine.
type origins struct {
	now journey.Origin
	err error
}

func (o *origins) Origin(context.Context, *v1alpha1.WindowsInstance) (journey.Origin, error) {
	return o.now, o.err
}

// ofMachine returns an instance of a Machine whose host has joined.
func ofMachine() *v1alpha1.WindowsInstance {
	i := leaving()
	i.Spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "win-a", UID: "machine"}
	return i
}

func TestAHostGoesWithItsMachineAndIsNotContacted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode(version))
	machine := &origins{now: journey.Origin{Exists: true, Drains: true}}
	w.Origins = machine
	w.runPod(t, "pod", false)
	i := ofMachine()
	want(t, w.remove.Discard(t.Context(), i, drainTimeout), "waits", contract.ReasonMachineLeaving)
	if n := w.getNode(t); n == nil || n.Spec.Unschedulable {
		t.Errorf("the owner of the Machine drains its Node, but the operator has changed it: %+v", n)
	}
	machine.now = journey.Origin{}
	want(t, w.remove.Discard(t.Context(), i, drainTimeout), "done", "")
	if w.getNode(t) != nil || w.machine.Dials() != 0 {
		t.Errorf("the Node still exists, or the host was contacted %d times", w.machine.Dials())
	}
	// If the Machine was deleted, its Node may be deleted as well.
	want(t, w.remove.Discard(t.Context(), i, drainTimeout), "done", "")
}

func TestANodeThatNobodyDrainsIsDrainedWhileItsMachineIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode(version))
	machine := &origins{now: journey.Origin{Exists: true}}
	w.Origins = machine
	w.runPod(t, "pod", false)
	w.runPod(t, "held", true)
	i := ofMachine()
	want(t, w.remove.Discard(t.Context(), i, drainTimeout), "waits", contract.ReasonDraining)
	if n := w.getNode(t); !n.Spec.Unschedulable {
		t.Error("pods can still be scheduled to the node")
	}
	w.clock = w.clock.Add(drainTimeout + 1)
	want(t, w.remove.Discard(t.Context(), i, drainTimeout), "waits", contract.ReasonDrainBlocked)
	machine.now = journey.Origin{} // after the Machine is gone, nothing waits for the drain
	want(t, w.remove.Discard(t.Context(), i, drainTimeout), "done", "")
	if w.getNode(t) != nil {
		t.Error("the Node still exists")
	}
}

func TestWhatBecameOfAMachineMustBeKnownBeforeItsNodeGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode(version))
	w.Origins = &origins{err: errors.New("away")}
	want(t, w.remove.Discard(t.Context(), ofMachine(), drainTimeout), "waits", contract.ReasonAPICallFailed)
	w.Origins = &origins{}
	w.broken["get"] = errors.New("away")
	want(t, w.remove.Discard(t.Context(), ofMachine(), drainTimeout), "waits", contract.ReasonAPICallFailed)
	delete(w.broken, "get")
	w.broken["delete"] = errors.New("away")
	want(t, w.remove.Discard(t.Context(), ofMachine(), drainTimeout), "waits", contract.ReasonAPICallFailed)
	if w.getNode(t) == nil {
		t.Error("the Node was deleted")
	}
}

func TestTheNodeOfAnotherHostStaysWhenAMachineGoes(t *testing.T) {
	t.Parallel()
	another := joinedNode(version)
	another.Spec.ProviderID = "cloud://another"
	w := newWorld(t, another)
	w.Origins = &origins{}
	i := ofMachine()
	i.Spec.ProviderID = "cloud://win-a"
	want(t, w.remove.Discard(t.Context(), i, drainTimeout), "done", "")
	if w.getNode(t) == nil {
		t.Error("another host's Node was deleted")
	}
}

// The operator sets the host name. If the template of a host is a domain member, the template determines the domain.
func TestAHostThatIsToBeRenamedKeepsItsDomain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		platform contract.Platform
		says     string
		want     string
	}{
		"on vSphere":                       {contract.PlatformVSphere, "win-abc12.corp.example", "win-abc12.corp.example"},
		"on vSphere, without a domain":     {contract.PlatformVSphere, "win-abc12", "win-abc12"},
		"on vSphere, what it was not told": {contract.PlatformVSphere, "api.corp.example", "win-abc12"},
		"where names have no dots":         {contract.PlatformNone, "win-abc12.corp.example", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.platform = test.platform
			w.machine.Change(func(f *contract.HostFacts) { f.Hostname, f.NodeName = "win-template", test.says })
			i := newInstance()
			i.Spec.Hostname = "win-abc12"
			w.join(t, i, &journey.Session{}, v1alpha1.PhasePreflight)
			if i.Status.NodeName != test.want {
				t.Errorf("the node name is %q, want %q", i.Status.NodeName, test.want)
			}
		})
	}
}

func TestAHostThatIsToBeRenamedIsKnownByTheNameItWillHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.machine.Change(func(f *contract.HostFacts) { f.Hostname = "win-template" })
	w.machine.Answer(contract.VerbPreflight,
		contract.PreflightAnswer{Facts: w.machine.Facts(), NeedsPrepare: []string{"rename the host"}})
	w.machine.Answer(contract.VerbPrepare, contract.PrepareAnswer{Rebooting: true, BootID: "boot-1"})
	i, session := newInstance(), &journey.Session{}
	i.Spec.Hostname = "win-abc12"
	want(t, w.join(t, i, session, v1alpha1.PhasePreparing), "waits", contract.ReasonRebooting)
	if i.Status.NodeName != "win-abc12" {
		t.Errorf("the instance claimed the name %s, which all copies of the template have", i.Status.NodeName)
	}
	looked, prepared := contract.PreflightRequest{}, contract.PrepareRequest{}
	for verb, request := range map[contract.Verb]any{contract.VerbPreflight: &looked, contract.VerbPrepare: &prepared} {
		if _, err := w.machine.Request(verb, request); err != nil {
			t.Fatal(err)
		}
	}
	if looked.VXLANPort != 9898 {
		t.Errorf("preflight was asked to check the VXLAN port %d", looked.VXLANPort)
	}
	if looked.Hostname != "win-abc12" || prepared.Hostname != "win-abc12" {
		t.Errorf("the host was told the names %q and %q", looked.Hostname, prepared.Hostname)
	}
	w.machine.Change(func(f *contract.HostFacts) { f.Hostname, f.BootID = "WIN-ABC12", "boot-2" })
	w.machine.Answer(contract.VerbPreflight, nil)
	want(t, w.join(t, i, session, v1alpha1.PhaseBootstrapping), "done", "")
}
