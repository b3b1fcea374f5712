package instance_test

import (
	"cmp"
	"context"
	"errors"
	"testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// firstContact returns the shared host key: key if the host was certainly created with it, else present.
type firstContact struct {
	key, present string
	err          error
}

func (f firstContact) SharedHostKey(context.Context, *v1alpha1.WindowsInstance) (string, bool, error) {
	return cmp.Or(f.key, f.present), f.key != "", f.err
}

func TestAHostThatWasMadeWithASharedKeyIsPinnedByItsOwn(t *testing.T) {
	t.Parallel()
	const shared, own, other = "ssh-ed25519 AAAAshared", "ssh-ed25519 AAAAown", "ssh-rsa AAAAother"
	for name, test := range map[string]struct {
		contact        journey.FirstContact
		shows          string
		proves         []string
		provingFails   error
		given, pinned  string // given by the user, and pinned before
		machine        bool   // the instance was created from a Machine
		verdict        string
		reason         contract.Reason
		pins, expected string
	}{
		"its own key is proven": {contact: firstContact{key: shared}, shows: shared,
			proves: []string{shared, own, other}, verdict: "done", pins: own},
		"it proves none": {contact: firstContact{key: shared}, shows: shared, verdict: "done",
			pins: shared},
		"it proves none but the shared one": {contact: firstContact{key: shared}, shows: shared,
			proves: []string{shared}, verdict: "done", pins: shared},
		"it is asked again while it had none": {contact: firstContact{key: shared}, shows: shared,
			proves: []string{own}, pinned: shared, verdict: "done", pins: own},
		"the shared key is good for once": {contact: firstContact{key: shared}, shows: shared,
			proves: []string{other}, pinned: own, verdict: "fails", reason: contract.ReasonHostKeyMismatch, pins: own},
		"another host answers": {contact: firstContact{key: shared}, shows: own, verdict: "fails",
			reason: contract.ReasonHostKeyMismatch},
		"what the user set counts": {contact: firstContact{key: shared}, shows: own, given: own,
			verdict: "done", pins: own},
		"a host that was made without one":      {contact: firstContact{}, shows: own, verdict: "done", pins: own},
		"nobody knows what hosts are made with": {shows: own, verdict: "done", pins: own},
		"the shared key should be known": {
			contact: firstContact{err: contract.NewProblem(contract.ReasonPrivateKeyMissing, "no")}, shows: own,
			verdict: "waits", reason: contract.ReasonPrivateKeyMissing},
		"the API server does not answer": {contact: firstContact{err: errors.New("away")}, shows: own,
			verdict: "waits", reason: contract.ReasonAPICallFailed},
		"the connection breaks while it proves": {contact: firstContact{key: shared}, shows: shared,
			provingFails: contract.NewProblem(contract.ReasonConnectionLost, "gone"), verdict: "fails",
			reason: contract.ReasonConnectionLost},
		"a Machine made before the key is known": {machine: true, shows: own, proves: []string{own, other},
			verdict: "done", pins: other},
		"a Machine that is pinned by such a key": {machine: true, shows: own, proves: []string{own, other}, pinned: own,
			verdict: "done", pins: other},
		"a Machine that has no other key": {machine: true, shows: own, proves: []string{own}, verdict: "done",
			pins: own},
		"a Machine that is not asked": {machine: true, shows: own, verdict: "done", pins: own},
		"a Machine with a key of its own": {machine: true, shows: other, proves: []string{own, other},
			verdict: "done", pins: other},
		"a Machine whose key the user has named": {machine: true, shows: own, proves: []string{own, other}, given: own,
			verdict: "done", pins: own},
		"a Machine with the shared key and more": {machine: true, contact: firstContact{key: shared}, shows: shared,
			proves: []string{shared, own, other}, verdict: "done", pins: other},
		"a host of the user's own is not asked": {shows: own, proves: []string{own, other}, verdict: "done",
			pins: own},
		"a listed host that was made from our user data": {contact: firstContact{present: shared}, shows: shared,
			proves: []string{shared, own, other}, verdict: "done", pins: own},
		"a listed host that is pinned by the shared key": {contact: firstContact{present: shared}, shows: shared,
			proves: []string{shared, own}, pinned: shared, verdict: "done", pins: own},
		"a listed host that has no other key": {contact: firstContact{present: shared}, shows: shared,
			proves: []string{shared}, verdict: "done", pins: shared},
		"a listed host that was not made from it": {contact: firstContact{present: shared}, shows: own,
			proves: []string{own, other}, verdict: "done", pins: own},
		"a listed host whose key the user has named": {contact: firstContact{present: shared}, shows: shared,
			proves: []string{shared, own}, given: shared, verdict: "done", pins: shared},
		"what proving can't do is not to be had": {contact: firstContact{key: shared}, shows: shared,
			proves: []string{"", own}, verdict: "done", pins: own},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.FirstContact = test.contact
			w.machine.Prove(test.shows, test.proves...)
			w.machine.Fail(hosttest.Proving, test.provingFails)
			i, session := newInstance(), &journey.Session{}
			i.Spec.HostKey, i.Status.HostKey = test.given, test.pinned
			if test.machine {
				i.Spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: i.Name}
			}
			want(t, w.join(t, i, session, v1alpha1.PhaseConnecting), test.verdict, test.reason)
			if i.Status.HostKey != test.pins {
				t.Errorf("pinned %q, want %q", i.Status.HostKey, test.pins)
			}
		})
	}
}

// When the connection is opened, the cache may not show the pinned key yet.
func TestA85_ConnectingDoesNotChangeThePinnedKeyOfAHostWithoutSSH(t *testing.T) {
	t.Parallel()
	w, i, session := newWorld(t), newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, v1alpha1.PhaseConnecting), "done", "")
	i.Spec.ByItself, i.Status.HostKey = &v1alpha1.ByItself{}, "pinned meanwhile"
	want(t, w.join(t, i, session, v1alpha1.PhaseConnecting), "done", "")
	if i.Status.HostKey != "pinned meanwhile" {
		t.Errorf("the pinned key is now %q", i.Status.HostKey)
	}
}
