package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/windows-nodes/wmco/lab/leak"
)

// helperVariable makes the test binary run as a lab that waits until it is killed.
const helperVariable = "WMCO_LAB_TEST_HELPER"

// helperReport is the output of the test binary that runs as a lab, when its cluster is running.
type helperReport struct {
	DataDir string
	PIDs    []int
}

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		if err := waitToBeKilled(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	leak.VerifyTestMain(m)
}

func waitToBeKilled(ctx context.Context) error {
	c, err := Start(ctx, Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(helperReport{DataDir: c.DataDir, PIDs: c.pids()}); err != nil {
		return err
	}
	select {}
}

// pids lists the processes of the running components.
func (c *Cluster) pids() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pids []int
	for _, p := range c.running {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// startCluster starts a cluster that is stopped at the end of the test.
func startCluster(t *testing.T, options Options) *Cluster {
	t.Helper()
	options.Progress = os.Stderr
	c, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// eventually calls ask until it returns nil, for at most two minutes.
func eventually(t *testing.T, ask func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			err := ask(ctx)
			if ctx.Err() == nil {
				last = err
			}
			return err == nil, nil
		})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

// writeTree writes files, by their slash-separated path, into a new folder.
func writeTree(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
