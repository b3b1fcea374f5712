package verbs_test

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// readCounter counts how often a file is read.
type readCounter struct {
	winos.Files
	path string
	n    *atomic.Int64
}

// Open implements winos.Files.
func (c readCounter) Open(path string) (io.ReadCloser, error) {
	if path == c.path {
		c.n.Add(1)
	}
	return c.Files.Open(path)
}

// zeroed joins a host and simulates a power cut, after which it starts the daemon again. The power cut leaves a
// kubeconfig of zeros and a state file that change has edited. zeroed returns the kubeconfig from before the power cut.
func zeroed(t *testing.T, r *rig, change func(*state.File)) (kubeconfig string) {
	t.Helper()
	join(t, r)
	awaitReconciled(t, r)
	stop(t, r, contract.ServiceDaemon)
	kubeconfig = read(t, r, contract.PathDaemonKubeconfig)
	write(t, r, contract.PathDaemonKubeconfig, "\x00\x00\x00", winos.AccessAdministrators)
	stateFile, err := state.Read(r.Host().Files)
	if err != nil {
		t.Fatal(err)
	}
	change(stateFile)
	if err = stateFile.Save(); err != nil {
		t.Fatal(err)
	}
	if err = r.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func TestADaemonWithoutAKubeconfigDoesNotBeginAnewEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		r := newRig(t, sim.Options{})
		r.files = func(files winos.Files) winos.Files { return readCounter{files, contract.PathKubelet, &reads} }
		kubeconfig := zeroed(t, r, func(*state.File) {})
		time.Sleep(30 * time.Second)
		before := reads.Load()
		time.Sleep(10 * time.Minute)
		if n := reads.Load() - before; n > 0 {
			t.Errorf("kubelet's program was read %d times in ten minutes without a change", n)
		}
		begun := strings.Count(journal(t, r), `"reconciling"`)
		write(t, r, contract.PathDaemonKubeconfig, kubeconfig, winos.AccessAdministrators)
		time.Sleep(2 * time.Minute)
		if n := strings.Count(journal(t, r), `"reconciling"`); n != begun+1 {
			t.Errorf("after the repair, the daemon had started its loop %d times, and before %d times", n, begun)
		}
		stop(t, r, contract.ServiceDaemon)
	})
}

// A power cut during an update also left zeros in the revision's confidential part, so the revision can't be applied.
// The daemon must return to the previous revision.
func TestARevisionThatCanNotBeReadWithoutAKubeconfigIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sim.Options{})
		var held string
		zeroed(t, r, func(s *state.File) {
			before := s.Revision
			held, s.Before, s.Verified = before.Name, &before, false
			s.Manifest.Confidential = strings.Repeat("a", 64)
			s.Revision.Name = versionOf(s.Manifest)
		})
		time.Sleep(6 * time.Minute)
		stop(t, r, contract.ServiceDaemon)
		stateFile, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		if stateFile.Revision.Name != held || stateFile.Failed == nil {
			t.Errorf("the host is at revision %s, the failed revision is %+v; the previous revision is %s",
				stateFile.Revision.Name, stateFile.Failed, held)
		}
	})
}
