package soak

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/instance/disrupt"
)

func drawn(seed uint64) Schedule {
	return Schedule{Seed: seed, Hosts: 50, Vanish: 40 * time.Second, Outage: 12 * time.Second, Spread: 10 * time.Second}
}

// first returns the first rounds of a schedule.
func first(s Schedule, many int) (rounds []Round) {
	for round := range s.Rounds() {
		if len(rounds) == many {
			break
		}
		rounds = append(rounds, round)
	}
	return rounds
}

func TestTheSameSeedGivesTheSameSchedule(t *testing.T) {
	t.Parallel()
	const many = 100
	rounds := first(drawn(7), many)
	if !reflect.DeepEqual(rounds, first(drawn(7), many)) {
		t.Fatal("the same seed gives a different round")
	}
	if reflect.DeepEqual(rounds, first(drawn(8), many)) {
		t.Error("another seed gives the same schedule")
	}
	if !reflect.DeepEqual(drawn(7).WarmUp(), drawn(7).WarmUp()) {
		t.Error("the same seed gives a different warm-up")
	}
}

func TestNothingInARoundConflictsAndAllIsWithinItsBounds(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{1, 3, 50} {
		seen := map[Kind]int{}
		changed := map[Setting]int{}
		s := drawn(uint64(hosts))
		s.Hosts = hosts
		for n, round := range first(s, 1000) {
			if len(round) == 0 || len(round) > mostInRound {
				t.Fatalf("round %d has %d disruptions", n, len(round))
			}
			for i, d := range round {
				seen[d.Kind]++
				changed[d.Setting]++
				if slices.ContainsFunc(round[i+1:], d.conflicts) {
					t.Errorf("round %d has conflicting disruptions: %v", n, round)
				}
				if d.After > s.Spread || d.Kind == KindVanish && (d.Away <= 0 || d.Away > s.Vanish) ||
					d.Kind == KindOutage && (d.Away <= 0 || d.Away > s.Outage) {
					t.Errorf("in round %d, a disruption exceeds a limit: %+v", n, d)
				}
				if slices.ContainsFunc(d.Hosts, func(h int) bool { return h < 0 || h >= hosts }) {
					t.Errorf("round %d has a host that does not exist: %+v", n, d)
				}
			}
		}
		for _, kind := range []Kind{KindSetting, KindReboot, KindVanish, KindReplace, KindKill, KindOutage} {
			if seen[kind] == 0 {
				t.Errorf("with %d hosts, this disruption never occurs: %s", hosts, kind)
			}
		}
		for _, setting := range Settings() {
			if changed[setting] == 0 {
				t.Errorf("with %d hosts, this setting never changes: %s", hosts, setting)
			}
		}
	}
}

// If a host was rebooted too often in a row, the operator stops rebooting it. The schedule must stay below this limit,
// but must reach it.
func TestNoHostIsRebootedMoreOftenThanTheOperatorGrants(t *testing.T) {
	t.Parallel()
	s, reboots := drawn(18), map[int]int{}
	most := 0
	for _, round := range append(s.WarmUp(), first(s, 200)...) {
		for _, d := range round {
			if d.Kind != KindReboot {
				continue
			}
			for _, h := range d.Hosts {
				reboots[h]++
				most = max(most, reboots[h])
			}
		}
	}
	if most != disrupt.MaxReboots {
		t.Errorf("the largest number of reboots of a host is %d, want %d", most, disrupt.MaxReboots)
	}
}

func TestWhatCanNotHappenSideBySideConflicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b Disruption
		want bool
	}{
		"the same host": {Disruption{Kind: KindReboot, Hosts: []int{1, 2}},
			Disruption{Kind: KindVanish, Hosts: []int{2}}, true},
		"different hosts": {Disruption{Kind: KindReboot, Hosts: []int{1}},
			Disruption{Kind: KindReboot, Hosts: []int{2}}, false},
		"the same setting": {Disruption{Kind: KindSetting, Setting: SettingCA},
			Disruption{Kind: KindSetting, Setting: SettingCA}, true},
		"different settings": {Disruption{Kind: KindSetting, Setting: SettingCA},
			Disruption{Kind: KindSetting, Setting: SettingProxy}, false},
		"kill and outage":      {Disruption{Kind: KindKill}, Disruption{Kind: KindOutage}, true},
		"two kills":            {Disruption{Kind: KindKill}, Disruption{Kind: KindKill}, true},
		"a setting and a kill": {Disruption{Kind: KindSetting, Setting: SettingCA}, Disruption{Kind: KindKill}, false},
	} {
		if got := c.a.conflicts(c.b); got != c.want || c.b.conflicts(c.a) != got {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheWarmUpDoesEverythingOnceAndRebootsEveryHost(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{1, 3} {
		s := drawn(3)
		s.Hosts = hosts
		seen, rebooted := map[Kind]int{}, 0
		for _, round := range s.WarmUp() {
			for i, d := range round {
				seen[d.Kind]++
				if d.Kind == KindReboot {
					rebooted += len(d.Hosts)
				}
				if slices.ContainsFunc(round[i+1:], d.conflicts) {
					t.Errorf("the warm-up has conflicting disruptions: %v", round)
				}
			}
		}
		want := map[Kind]int{KindSetting: len(Settings()), KindReboot: 1, KindVanish: 1, KindReplace: 1, KindKill: 1,
			KindOutage: 1}
		if !reflect.DeepEqual(seen, want) || rebooted != hosts {
			t.Errorf("with %d hosts, the warm-up has %v and reboots %d hosts", hosts, seen, rebooted)
		}
	}
}

func TestAReportThatWasInterruptedClaimsNothing(t *testing.T) {
	t.Parallel()
	report := Report{Interrupted: true, Rounds: []RoundReport{{}, {Error: "not converged"}}}
	if err := report.Err(); err == nil || !strings.Contains(err.Error(), "after 1 rounds that converged") {
		t.Errorf("the error is %v", err)
	}
}
