package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/lab/soak"
)

// The short form of `make soak`: each disruption happens once, and then some of them again.
func TestNodesThatAreDisruptedConvergeAndNothingLeaks(t *testing.T) {
	t.Parallel()
	waitForPlace(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	report, err := soak.Run(t.Context(), soak.Options{
		Operator: os.Getenv("WMCO_OPERATOR"), Progress: os.Stderr, Time: 10 * time.Minute, MostRounds: 1, Limit: soon,
		Schedule: soak.Schedule{Seed: seed, Hosts: 3, Vanish: 2 * time.Second, Outage: 2 * time.Second,
			Spread: time.Second},
		Calm: time.Second, Certificates: soak.ShortestCertificate,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err = report.Err(); err != nil {
		t.Error(fmt.Errorf("with --seed %d: %w", seed, err))
	}
	if report.After == nil || len(report.Rounds) != len(soak.Schedule{Hosts: 3}.WarmUp())+1 {
		t.Errorf("it did not come to its end: %d rounds", len(report.Rounds))
	}
}
