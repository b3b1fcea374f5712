package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// running reports whether a process exists and isn't a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, found := bytes.Cut(stat, []byte(") "))
	return found && len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}

func TestNoProcessOutlivesAKilledLab(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	lab := exec.CommandContext(t.Context(), self)
	lab.Env = append(os.Environ(), helperVariable+"=1", "TMPDIR="+temporary)
	lab.Stderr = os.Stderr
	output, err := lab.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(output).ReadBytes('\n')
	if err := lab.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := lab.Wait(); err == nil || readErr != nil {
		t.Fatalf("the lab ended by itself: %v, %v", err, readErr)
	}
	var report helperReport
	if err := json.Unmarshal(line, &report); err != nil || len(report.PIDs) != 3 {
		t.Fatalf("the lab's report can't be parsed: %s: %v", line, err)
	}
	eventually(t, func(context.Context) error {
		for _, pid := range report.PIDs {
			if running(pid) {
				return fmt.Errorf("process %d outlived the lab", pid)
			}
		}
		return nil
	})

	sweepAbandoned(temporary) // the start of the next lab does the same
	if _, err := os.Stat(report.DataDir); !os.IsNotExist(err) {
		t.Errorf("the data directory of the killed lab was not removed: %v", err)
	}
}
