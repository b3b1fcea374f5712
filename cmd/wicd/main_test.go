//go:build !windows

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestWhatTheDaemonLinks checks that the daemon's binary doesn't contain some packages. The daemon runs on every node,
// and each of these packages would make it larger or easier to attack.
func TestWhatTheDaemonLinks(t *testing.T) {
	t.Parallel()
	forbidden := map[string]string{
		"golang.org/x/crypto/ssh": "the daemon pulls; only the operator reaches out over SSH",
		"github.com/pkg/sftp":     "the same",
		"github.com/openshift/api": "a node's state comes from the manifest, not from " +
			"OpenShift's objects",
		"sigs.k8s.io/controller-runtime": "it would bring caches for a whole cluster; the " +
			"daemon watches two objects",
		"k8s.io/client-go/informers":                        "the same",
		"github.com/windows-nodes/wmco/api":                 "the operator's objects are none of a node's business",
		"github.com/windows-nodes/wmco/internal/host":       "the operator's",
		"github.com/windows-nodes/wmco/internal/instance":   "the operator's",
		"github.com/windows-nodes/wmco/internal/controller": "the operator's",
		"github.com/windows-nodes/wmco/lab/sim":             "product code never imports the simulator",
		"testing":                                           "no test code in a product",
	}
	for _, system := range []string{"windows", "linux"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dependency := range strings.Fields(string(out)) {
			for prefix, why := range forbidden {
				if dependency == prefix || strings.HasPrefix(dependency, prefix+"/") && prefix != "testing" {
					t.Errorf("%s: links %s: %s", system, dependency, why)
				}
			}
		}
	}
}

func TestHomeIsAboveTheRPCDirectory(t *testing.T) {
	t.Parallel()
	if got := home("/home/x/.wmco/wicd-0123.exe"); got != "/home/x" {
		t.Errorf("the home directory is %q", got)
	}
}
