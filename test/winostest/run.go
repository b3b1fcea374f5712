package winostest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// Run runs the suite. It calls newHost once for each part of the suite.
func Run(t *testing.T, newHost func(t *testing.T) Fixture) {
	t.Helper()
	for _, part := range []struct {
		name  string
		cases []testCase
	}{
		{"services", serviceCases()},
		{"exes", exeCases()},
		{"files", fileCases()},
		{"access", accessCases()},
		{"names", nameCases()},
		{"environment", environmentCases()},
		{"trust", trustCases()},
		{"system", systemCases()},
		{"network", networkCases()},
		{"routes", routesCases()},
		{"logs", logsCases()},
	} {
		t.Run(part.name, func(t *testing.T) {
			m := machine{Fixture: newHost(t)}
			for ability := range m.Cannot {
				if !slices.Contains(abilities(), ability) {
					t.Fatalf("the fixture names an ability that does not exist: %q", ability)
				}
			}
			for _, c := range part.cases {
				m.runCase(t, c)
			}
		})
	}
}

// testCase is one case of the suite.
type testCase struct {
	name  string
	needs []Ability
	// whole: the case needs a machine that may be restarted.
	whole bool
	run   func(m machine)
}

// machine is a fixture during one case.
type machine struct {
	Fixture
	// t belongs to the case.
	t *testing.T
	// dir is an empty directory for this case, and prefix starts the names of its services,
	// variables and networks.
	dir, prefix string
}

func (m machine) runCase(t *testing.T, c testCase) {
	t.Helper()
	for _, need := range c.needs {
		if why, cannot := m.Cannot[need]; cannot {
			t.Logf("skipped: %s: %s", c.name, why)
			return
		}
	}
	if c.whole && m.Reboot == nil {
		t.Logf("skipped: %s: this machine must not be restarted", c.name)
		return
	}
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, c.name)
	m.prefix = "wmcotest-" + word[:min(len(word), 40)]
	m.dir = m.Scratch + `\` + word[:min(len(word), 40)]
	t.Run(c.name, func(t *testing.T) {
		m.t = t
		mkdir(t, m, m.dir)
		c.run(m)
	})
}

// waitLimit is how long the suite waits for a change that the machine makes by itself.
const waitLimit = time.Minute

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timed out while waiting: %s", what)
		}
	}
}
