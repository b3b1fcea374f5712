package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		log       string
		want      []string
		portTaken bool
	}{
		"a port that is taken": {
			log: "I started\nE listen tcp 127.0.0.1:6443: bind: address already in use\n",
			want: []string{"kube-apiserver ended: exit status 1", "\tE listen tcp",
				"another program took the port"},
			portTaken: true,
		},
		"a full disk":                 {log: "write: no space left on device\n", want: []string{"free some space"}},
		"a flag that is no more":      {log: "Error: unknown flag: --profiling\n", want: []string{"dropped a flag"}},
		"something never seen before": {log: "panic: surprise\n", want: []string{"panic: surprise", "read its log"}},
		"only the last lines are given": {log: "first\n" + strings.Repeat("more\n", 19) + "last\n",
			want: []string{"\tmore\n", "\tlast\n"}},
		"a silent component": {log: "", want: []string{"(it wrote nothing)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "kube-apiserver.log")
			if err := os.WriteFile(log, []byte(test.log), 0o600); err != nil {
				t.Fatal(err)
			}
			err := explain(component{name: apiServerName, log: log}, "ended: exit status 1")
			for _, want := range append(test.want, log) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), "first") {
				t.Errorf("the error has more than the last lines:\n%v", err)
			}
			if err.portTaken != test.portTaken {
				t.Errorf("portTaken is %v", err.portTaken)
			}
		})
	}
}

func TestLastLinesOfALongLogAreWhole(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte(strings.Repeat("0123456789\n", 2*tailBytes/11)), 0o600); err != nil {
		t.Fatal(err)
	}
	lines, err := lastLines(log, tailBytes)
	if err != nil || len(lines) < tailBytes/11-1 {
		t.Fatalf("got %d lines, %v", len(lines), err)
	}
	for _, line := range lines {
		if line != "0123456789" {
			t.Fatalf("the first line is incomplete: %q", line)
		}
	}
	if lines, err := lastLines(log+".absent", 5); err != nil || lines != nil {
		t.Errorf("the last lines of a missing log are %v, %v", lines, err)
	}
}

func TestTailWriterKeepsTheEnd(t *testing.T) {
	t.Parallel()
	w := &tailWriter{limit: 8}
	for _, text := range []string{"first ", "second ", "third\n"} {
		if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := w.String(); got != "d third" {
		t.Errorf("the tail is %q", got)
	}
}
