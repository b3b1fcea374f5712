package reconcile_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// podSubnet is the Node's part of the pod network. It doesn't depend on the name of the network.
const podSubnet = "10.132.1.0/24"

// maker is a program like flanneld. It creates the network that is named in its configuration file, and ignores
// existing networks with other names.
func maker(ctx context.Context, p *sim.Process) int {
	name, err := winos.ReadFile(p.Host.Files, contract.PathFlannelConfig)
	if err == nil {
		network := winos.HNSNetwork{Name: string(name), Subnet: netip.MustParsePrefix(podSubnet)}
		if _, err = fmt.Sscanf(network.Name, "flannel.%d", &network.VNI); err != nil {
			return 1
		}
		if _, err = p.MakeNetwork(network); err != nil {
			return 1
		}
	}
	p.Running()
	<-ctx.Done()
	return 0
}

// onNetwork returns a manifest whose pods use the HNS network with this name. A service of the manifest creates the
// network.
func onNetwork(name string) contract.Manifest {
	m := manifest()
	m.PodNetwork = name
	m.Files = append(m.Files, contract.File{Path: contract.PathFlannelConfig, Content: name,
		Services: []string{"hybrid-overlay-node"}})
	return m
}

func (r *rig) expectNetworks(t *testing.T, want ...string) {
	t.Helper()
	var names []string
	for _, n := range r.HNSNetworks() {
		names = append(names, n.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("the HNS networks are %v, want %v", names, want)
	}
}

// The VXLAN ID is part of the name of flanneld's network. flanneld does not remove networks with other IDs, so the
// daemon must remove them.
func TestANetworkOfAnEarlierRevisionGoesBeforeTheNextIsMade(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		for _, name := range []string{"flannel.4096", "flannel.4097", "flannel.4096"} {
			version := r.publish(t, onNetwork(name))
			r.annotate(t, contract.DesiredRevisionAnnotation, version)
			pass(5 * time.Minute)
			r.expectStatus(t, version, "")
			r.expectNetworks(t, name)
		}
	})
}

func TestTheNetworkOfARevisionThatFailedGoesToo(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		first := r.publish(t, onNetwork("flannel.4096"))
		r.annotate(t, contract.DesiredRevisionAnnotation, first)
		pass(5 * time.Minute)
		r.expectNetworks(t, "flannel.4096")
		r.broken.Store(true)
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, onNetwork("flannel.4097")))
		pass(time.Minute)
		r.broken.Store(false)
		pass(10 * time.Second)
		r.annotate(t, contract.DesiredRevisionAnnotation, first)
		pass(5 * time.Minute)
		r.expectStatus(t, first, "")
		r.expectNetworks(t, "flannel.4096")
	})
}

// Each trial of a revision creates the revision's network, and each rollback removes it. The daemon must not take this
// for interference by another program and delay the removal, because both networks have the same addresses.
func TestTheNetworkOfARevisionThatFailsAgainAndAgainIsNoInterference(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		first := r.publish(t, onNetwork("flannel.4096"))
		next := r.publish(t, onNetwork("flannel.4097"))
		r.annotate(t, contract.DesiredRevisionAnnotation, first)
		pass(5 * time.Minute)
		for range 5 {
			r.broken.Store(true)
			r.annotate(t, contract.DesiredRevisionAnnotation, next)
			pass(time.Minute)
			r.broken.Store(false)
			pass(10 * time.Second)
			r.annotate(t, contract.DesiredRevisionAnnotation, first)
			pass(5 * time.Minute) // the daemon remembers ends of services for this long
			r.expectStatus(t, first, "")
			r.expectNetworks(t, "flannel.4096")
		}
	})
}

// A reboot deletes flannel's network. flanneld creates it again, and the daemon must then use the new network's
// address.
func TestAfterARebootTheNodeIsOnTheNetworkThatFlanneldMakesAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		version := r.publish(t, onNetwork("flannel.4096"))
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(5 * time.Minute)
		r.expectStatus(t, version, "")
		before := r.HNSNetworks()
		r.stopDaemon()
		reboot(t, r)
		r.start(t, nil)
		pass(5 * time.Minute)
		r.expectStatus(t, version, "")
		r.expectNetworks(t, "flannel.4096")
		if now := r.HNSNetworks(); now[0].ID == before[0].ID || now[0].VNI != 4096 {
			t.Errorf("the networks were %+v and are %+v", before, now)
		}
	})
}

// Other programs that use HNS, such as Docker, have their own networks. The daemon must not remove these.
func TestNetworksOfOthersStay(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		_, err := r.CreateHNSNetwork(winos.HNSNetwork{Name: "nat", Subnet: netip.MustParsePrefix("172.20.0.0/16")})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"flannel.4096", "flannel.4097"} {
			r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, onNetwork(name)))
			pass(5 * time.Minute)
		}
		r.expectNetworks(t, "flannel.4097", "nat")
	})
}

func TestANetworkThatStaysIsReportedAndTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		first := r.publish(t, onNetwork("flannel.4096"))
		r.annotate(t, contract.DesiredRevisionAnnotation, first)
		pass(5 * time.Minute)
		r.SetHNSFault(winos.ErrDenied)
		next := r.publish(t, onNetwork("flannel.4097"))
		r.annotate(t, contract.DesiredRevisionAnnotation, next)
		pass(10 * time.Second)
		r.expectStatus(t, first, contract.ReasonNetworkNotRemoved)
		r.SetHNSFault(nil)
		pass(25 * time.Minute)
		r.expectStatus(t, next, "")
		r.expectNetworks(t, "flannel.4097")
	})
}
