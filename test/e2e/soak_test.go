package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/soak"
)

// This is the short form of `make soak`: each disruption happens once, and some happen several times. All nodes must
// converge, and no goroutine may leak. The test runs in its own process, so that only its own goroutines are counted.
func TestNodesThatAreDisruptedConvergeAndNothingLeaks(t *testing.T) {
	t.Parallel()
	waitForPlace(t)
	seed, path := rand.Uint64(), filepath.Join(t.TempDir(), "soak.json")
	t.Logf("seed %d", seed)
	operator := os.Getenv("WMCO_OPERATOR")
	short := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(operator), "winlab"), "soak", "--operator", operator,
		"--seed", strconv.FormatUint(seed, 10), "--hosts", "3", "--time", "10m", "--rounds", "1", "--away", "2s",
		"--calm", "1s", "--limit", fmt.Sprint(soon), "--certificates", fmt.Sprint(soak.ShortestCertificate), "--json", path)
	short.Stdout, short.Stderr = os.Stderr, os.Stderr
	wait, err := cluster.StartChild(short)
	must(t, err)
	ended := wait()
	content, err := os.ReadFile(path)
	must(t, err)
	report := soak.Report{}
	must(t, json.Unmarshal(content, &report))
	if err = report.Err(); err != nil || ended != nil {
		t.Errorf("with --seed %d: %v, %v", seed, ended, err)
	}
	if report.After == nil || len(report.Rounds) != len(soak.Schedule{Hosts: 3}.WarmUp())+1 {
		t.Errorf("the soak ended early: %d rounds", len(report.Rounds))
	}
}
