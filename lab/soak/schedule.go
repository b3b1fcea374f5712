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

// Kinds of disruptions. For KindSetting, see also Settings.
const (
	KindSetting Kind = "setting"
	KindReboot  Kind = "reboot"
	KindVanish  Kind = "vanish"
	KindReplace Kind = "remove and add"
	KindKill    Kind = "operator killed"
	KindOutage  Kind = "API server away"
)

// Setting is a setting that an administrator changes.
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

// Settings lists all settings.
func Settings() []Setting {
	return []Setting{SettingMirror, SettingCA, SettingPullSecret, SettingProxy, SettingLogging, SettingKubelet}
}

// Disruption is one disruption of the cluster.
type Disruption struct {
	Kind Kind `json:"kind"`
	// Setting is the changed setting, for KindSetting.
	Setting Setting `json:"setting,omitempty"`
	// Hosts are the disrupted hosts, by index in the fleet.
	Hosts []int `json:"hosts,omitempty"`
	// After is the delay from the start of the round.
	After time.Duration `json:"afterNanoseconds"`
	// Away is the time that a host or the API server is down.
	Away time.Duration `json:"awayNanoseconds,omitempty"`
}

// String returns one line for a terminal.
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

// Round is a list of disruptions that happen in parallel. The next round begins when the cluster has converged.
type Round []Disruption

// Schedule draws the disruptions. The result depends only on its fields.
type Schedule struct {
	// Seed of all draws.
	Seed uint64
	// Hosts is the number of hosts.
	Hosts int
	// Vanish and Outage are the maximum times that a host and the API server are down. Spread is the maximum delay
	// of a disruption in its round.
	Vanish, Outage, Spread time.Duration
}

// WarmUp returns one disruption of each kind and a change of each setting. So the first count includes everything
// that only a first disruption creates.
func (s Schedule) WarmUp() []Round {
	random := rand.New(rand.NewPCG(s.Seed, 0))
	var settings Round
	for _, setting := range Settings() {
		settings = append(settings, Disruption{Kind: KindSetting, Setting: setting})
	}
	rounds := []Round{settings}
	// Reboot each host, because a first reboot can leave files on it. The first count must include them.
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

// mostInRound is the maximum number of disruptions in a round.
const mostInRound = 4

// Rounds draws an endless sequence of rounds. The disruptions in a round are sorted by their start, and don't conflict
// with each other. Including the warm-up, each host gets at most disrupt.MaxReboots reboots, because the operator
// refuses further reboots in a row.
func (s Schedule) Rounds() iter.Seq[Round] {
	return func(yield func(Round) bool) {
		reboots := slices.Repeat([]int{1}, s.Hosts) // from the warm-up
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

// round draws one round. `reboots` contains the number of reboots of each host so far. A round is never empty.
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

// draw draws one disruption. On average, half of the disruptions are changes of settings. Only one in twelve is an
// outage of the API server, because no work continues without it.
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

// The method some draws hosts: at least one, and at most a tenth of all hosts.
func (s Schedule) some(random *rand.Rand) []int {
	hosts := random.Perm(s.Hosts)[:1+random.IntN(max(1, s.Hosts/10))]
	slices.Sort(hosts)
	return hosts
}

// between(random, least, most) draws a duration in this range.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}

// The method conflicts reports whether two disruptions can't happen in parallel, because one would undo or hide the
// effect of the other.
func (d Disruption) conflicts(other Disruption) bool {
	switch {
	case slices.ContainsFunc(d.Hosts, func(h int) bool { return slices.Contains(other.Hosts, h) }):
		return true // a host can't do two things at a time
	case d.Kind == KindSetting:
		return d.Setting == other.Setting
	}
	// If there is no API server when the operator starts, the operator exits. In a cluster, its Deployment starts it
	// again. The lab doesn't.
	programs := []Kind{KindKill, KindOutage}
	return slices.Contains(programs, d.Kind) && slices.Contains(programs, other.Kind)
}

// Values for a test of an hour. In the lab, an unresponsive node is NotReady after 20 s, so about half of the hosts
// that vanish are noticed. The API server's outage is too short for the operator to lose its lease.
const (
	Vanish = 40 * time.Second
	Outage = 12 * time.Second
	Spread = 10 * time.Second
	// ShortestCertificate is the minimum lifetime that a certificate request can have.
	ShortestCertificate = 10 * time.Minute
)
