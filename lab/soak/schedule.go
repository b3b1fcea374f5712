package soak

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/instance/disrupt"
)

// Kind is a kind of disruption.
type Kind string

// Kinds of disruptions. A setting is one more by itself: see Settings.
const (
	KindSetting Kind = "setting"
	KindReboot  Kind = "reboot"
	KindVanish  Kind = "vanish"
	KindReplace Kind = "remove and add"
	KindKill    Kind = "operator killed"
	KindOutage  Kind = "API server away"
)

// Setting is what an administrator changes.
type Setting string

// Settings that change.
const (
	SettingMirror     Setting = "mirror"
	SettingCA         Setting = "CA"
	SettingPullSecret Setting = "pull secret"
	SettingProxy      Setting = "proxy"
	SettingLogging    Setting = "logging"
	SettingKubelet    Setting = "kubelet"
)

// Settings lists them all.
func Settings() []Setting {
	return []Setting{SettingMirror, SettingCA, SettingPullSecret, SettingProxy, SettingLogging, SettingKubelet}
}

// Disruption is one thing that happens to the cluster.
type Disruption struct {
	Kind Kind `json:"kind"`
	// Setting that changes, for KindSetting.
	Setting Setting `json:"setting,omitempty"`
	// Hosts that it happens to, by their place in the fleet, from 0.
	Hosts []int `json:"hosts,omitempty"`
	// After is when it begins, since the beginning of its round.
	After time.Duration `json:"afterNanoseconds"`
	// Away is how long a host or the API server does not answer.
	Away time.Duration `json:"awayNanoseconds,omitempty"`
}

// String is one line for a terminal.
func (d Disruption) String() string {
	switch d.Kind {
	case KindSetting:
		return "another " + string(d.Setting)
	case KindOutage:
		return fmt.Sprintf("%s for %s", d.Kind, d.Away.Round(time.Second/10))
	case KindVanish:
		return fmt.Sprintf("hosts %v vanish for %s", oneBased(d.Hosts), d.Away.Round(time.Second/10))
	case KindKill:
		return string(d.Kind)
	}
	return fmt.Sprintf("hosts %v %s", oneBased(d.Hosts), d.Kind)
}

func oneBased(hosts []int) []int {
	named := slices.Clone(hosts)
	for i := range named {
		named[i]++
	}
	return named
}

// Round is what happens side by side. The next one begins when everything has converged.
type Round []Disruption

// Schedule says which disruption comes when. It is a function of its fields alone.
type Schedule struct {
	// Seed of all draws.
	Seed uint64
	// Hosts is how many there are.
	Hosts int
	// Vanish and Outage are how long a host and the API server are away at most; Spread is how late
	// in its round a disruption begins at most.
	Vanish, Outage, Spread time.Duration
}

// WarmUp makes one disruption of each kind and changes each setting, so that what appears with the
// first one is there when things are counted.
func (s Schedule) WarmUp() []Round {
	random := rand.New(rand.NewPCG(s.Seed, 0))
	var settings Round
	for _, setting := range Settings() {
		settings = append(settings, Disruption{Kind: KindSetting, Setting: setting})
	}
	rounds := []Round{settings}
	// Whatever a host's first reboot leaves on it is there, too, when things are counted.
	every := make([]int, s.Hosts)
	for i := range every {
		every[i] = i
	}
	rounds = append(rounds, Round{{Kind: KindReboot, Hosts: every}})
	order := random.Perm(s.Hosts)
	gone := Round{{Kind: KindVanish, Hosts: order[:1], Away: s.Vanish}}
	if s.Hosts > 1 {
		gone = append(gone, Disruption{Kind: KindReplace, Hosts: order[1:2]})
	} else {
		rounds = append(rounds, Round{{Kind: KindReplace, Hosts: order[:1]}})
	}
	return append(rounds, gone, Round{{Kind: KindOutage, Away: s.Outage}}, Round{{Kind: KindKill}})
}

// Rounds of a schedule have at most so many disruptions.
const mostInRound = 4

// Rounds draws one round after the other, without end. Disruptions in a round are in the order in which
// they begin, and none conflicts with another. No host is rebooted more often, with the warm-up, than the
// operator grants in a row: it would leave that host alone.
func (s Schedule) Rounds() iter.Seq[Round] {
	return func(yield func(Round) bool) {
		reboots := slices.Repeat([]int{1}, s.Hosts) // by the warm-up
		for n := uint64(1); ; n++ {
			round := s.round(n, reboots)
			for _, d := range round {
				if d.Kind != KindReboot {
					continue
				}
				for _, h := range d.Hosts {
					reboots[h]++
				}
			}
			if !yield(round) {
				return
			}
		}
	}
}

// round draws one, when hosts have been rebooted so often. A round is never empty.
func (s Schedule) round(n uint64, reboots []int) Round {
	random := rand.New(rand.NewPCG(s.Seed, n))
	spent := func(h int) bool { return reboots[h] >= disrupt.MaxReboots }
	var round Round
	for left := 1 + random.IntN(mostInRound); left > 0 || len(round) == 0; left-- {
		d := s.draw(random)
		if d.Kind == KindReboot {
			d.Hosts = slices.DeleteFunc(d.Hosts, spent)
			if len(d.Hosts) == 0 {
				continue
			}
		}
		if !slices.ContainsFunc(round, d.conflicts) {
			round = append(round, d)
		}
	}
	slices.SortStableFunc(round, func(a, b Disruption) int { return cmp.Compare(a.After, b.After) })
	return round
}

// draw gives settings half of all turns, and the API server, without which nothing goes on, the fewest.
func (s Schedule) draw(random *rand.Rand) Disruption {
	d := Disruption{After: between(random, 0, s.Spread)}
	switch n := random.IntN(12); {
	case n < 6:
		d.Kind, d.Setting = KindSetting, Settings()[random.IntN(len(Settings()))]
	case n < 8:
		d.Kind, d.Hosts = KindReboot, s.some(random)
	case n < 9:
		d.Kind, d.Hosts, d.Away = KindVanish, s.some(random), between(random, s.Vanish/8, s.Vanish)
	case n < 10:
		d.Kind, d.Hosts = KindReplace, s.some(random)
	case n < 11:
		d.Kind = KindKill
	default:
		d.Kind, d.Away = KindOutage, between(random, s.Outage/4, s.Outage)
	}
	return d
}

// some hosts: one, or up to a tenth of all.
func (s Schedule) some(random *rand.Rand) []int {
	hosts := random.Perm(s.Hosts)[:1+random.IntN(max(1, s.Hosts/10))]
	slices.Sort(hosts)
	return hosts
}

// between draws a duration from least to most.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}

// conflicts says whether two disruptions can't happen side by side: each would undo, or could not
// tell, what the other does.
func (d Disruption) conflicts(other Disruption) bool {
	switch {
	case slices.ContainsFunc(d.Hosts, func(h int) bool { return slices.Contains(other.Hosts, h) }):
		return true // one host does one thing at a time
	case d.Kind == KindSetting:
		return d.Setting == other.Setting
	}
	// An operator that starts while there is no API server ends at once, as its Deployment expects.
	programs := []Kind{KindKill, KindOutage}
	return slices.Contains(programs, d.Kind) && slices.Contains(programs, other.Kind)
}

// What an hour's soak does. An unresponsive node is NotReady after 20 s in the lab, so that hosts which vanish
// are noticed in half of all cases. The API server is away for less than it takes the operator to lose
// its lease.
const (
	Vanish = 40 * time.Second
	Outage = 12 * time.Second
	Spread = 10 * time.Second
	// ShortestCertificate is the least life that a request may ask for.
	ShortestCertificate = 10 * time.Minute
)
