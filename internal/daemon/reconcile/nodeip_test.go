package reconcile_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// A node's identity includes its address. If the address changes, kubelet restarts, and its pods appear to be on
// another node. So the node keeps its address as long as the host has it.
func TestTheNodeKeepsItsAddressForAsLongAsTheHostHasIt(t *testing.T) {
	other := netip.MustParseAddr("192.168.77.5")
	for name, c := range map[string]struct {
		happens func(t *testing.T, r *rig)
		want    netip.Addr
		starts  int
	}{
		"another card has the default route for a while": {
			happens: func(_ *testing.T, r *rig) {
				for range 3 {
					r.SetSecondCard(other)
					pass(10 * time.Minute)
					r.SetSecondCard(netip.Addr{})
					pass(10 * time.Minute)
				}
			}, want: firstCard(),
		},
		"another card has it, and another daemon begins": {
			happens: func(t *testing.T, r *rig) {
				r.SetSecondCard(other)
				r.stopDaemon()
				r.start(t, r.api)
				pass(10 * time.Minute)
			}, want: firstCard(),
		},
		"the link is down for seconds": {
			happens: func(_ *testing.T, r *rig) { flaps(r) }, want: firstCard(),
		},
		"the link is down for seconds, and another card has the default route": {
			happens: func(_ *testing.T, r *rig) {
				r.SetSecondCard(other)
				flaps(r)
			}, want: firstCard(),
		},
		"the link is down when a daemon begins": {
			happens: func(t *testing.T, r *rig) {
				r.SetSecondCard(other)
				r.SetLinkDown(true)
				r.stopDaemon()
				r.start(t, r.api)
				pass(30 * time.Second)
				r.SetLinkDown(false)
				pass(10 * time.Minute)
			}, want: firstCard(),
		},
		"the link is down for seconds, and the clock is set back": {
			happens: func(_ *testing.T, r *rig) { blink(r, other, -time.Hour) }, want: firstCard(),
		},
		"the link is down for seconds, and the clock is set forward": {
			happens: func(_ *testing.T, r *rig) { blink(r, other, time.Hour) }, want: firstCard(),
		},
		"the link is down for an hour and comes back": {
			happens: func(_ *testing.T, r *rig) {
				r.SetLinkDown(true)
				pass(time.Hour)
				r.SetLinkDown(false)
				pass(5 * time.Minute)
			}, want: firstCard(),
		},
		"the host has it no longer": {
			happens: func(_ *testing.T, r *rig) {
				r.SetLinkDown(true)
				r.SetSecondCard(other)
				pass(6 * time.Minute)
			}, want: other, starts: 1,
		},
		"the host had it no longer, and has it again": {
			happens: func(_ *testing.T, r *rig) {
				r.SetLinkDown(true)
				r.SetSecondCard(other)
				pass(6 * time.Minute)
				r.SetLinkDown(false)
				pass(20 * time.Minute)
			}, want: other, starts: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				m := manifest()
				m.Services[1].Command += " --node-ip=NODE_IP"
				m.Services[1].HostVariables = []contract.HostVariable{{Name: "NODE_IP", Fact: contract.FactNodeIP}}
				two := r.want(t, m, contract.Confidential{})
				pass(time.Minute)
				r.expectStatus(t, two, "")
				before := r.starts.Load() // starts of kube-proxy, which depends on kubelet
				c.happens(t, r)
				r.expectStatus(t, two, "")
				s, err := r.Host().Services.Get(t.Context(), "kubelet")
				if err != nil || !strings.HasSuffix(s.Command, "--node-ip="+c.want.String()) {
					t.Errorf("kubelet's command is %q (%v), want the address %s", s.Command, err, c.want)
				}
				if n := int(r.starts.Load() - before); n != c.starts {
					t.Errorf("services were started %d times, want %d", n, c.starts)
				}
			})
		})
	}
}

// flaps disconnects the network card several times, for some seconds each.
func flaps(r *rig) {
	for i := range 20 {
		r.SetLinkDown(true)
		pass(time.Duration(i) * 2 * time.Second)
		r.SetLinkDown(false)
		pass(47 * time.Second)
	}
}

// blink disconnects the first card for some seconds. Meanwhile it changes the host's clock.
func blink(r *rig, other netip.Addr, by time.Duration) {
	r.SetSecondCard(other)
	r.SetLinkDown(true)
	pass(11 * time.Second)
	r.SetClockOffset(by)
	pass(11 * time.Second)
	r.SetLinkDown(false)
	pass(5 * time.Minute)
}

// firstCard returns the address of the simulated machine's first network card.
func firstCard() netip.Addr { return netip.MustParseAddr("10.0.0.5") }

func TestAnAddressThatNoServiceGetsAnyMoreCausesNoWork(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		m := manifest()
		m.Services[1].HostVariables = []contract.HostVariable{{Name: "NODE_IP", Fact: contract.FactNodeIP}}
		r.want(t, m, contract.Confidential{})
		pass(time.Minute)
		three := r.want(t, another("three"), contract.Confidential{})
		pass(5 * time.Minute)
		r.expectStatus(t, three, "")
		r.passes.Store(0)
		pass(10 * time.Minute)
		if n := r.passes.Load(); n > 7 {
			t.Errorf("%d passes within ten minutes without a change", n)
		}
	})
}
