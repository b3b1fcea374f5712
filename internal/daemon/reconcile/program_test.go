package reconcile_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/lab/sim"
)

const oldDaemon, newDaemon = "MZ daemon 1", "MZ daemon 2"

// withDaemon adds the daemon's program to a manifest.
func withDaemon(m contract.Manifest, exe string) contract.Manifest {
	m.Files = append(m.Files, contract.File{Path: contract.PathDaemon, Digest: digestOf(exe), Size: int64(len(exe))})
	return m
}

// first returns the first revision, which contains the old daemon.
func first() contract.Manifest { return withDaemon(manifest(), oldDaemon) }

// settled puts the machine in a state in which the old daemon has verified the first revision.
func settled(t *testing.T, r *rig) {
	t.Helper()
	for _, exe := range []string{oldDaemon, newDaemon} {
		r.write(t, contract.DirStore+`\`+digestOf(exe), exe)
	}
	r.write(t, contract.PathDaemon, oldDaemon)
	holds(t, r)
	r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, first()))
	pass(10 * time.Second)
	r.expectStatus(t, versionOf(first()), "")
	if r.replaced.Load() > 0 {
		t.Fatal("the daemon was replaced without a request")
	}
}

// writers records which daemon wrote each revision to the state file.
func (r *rig) writers() func() map[string]string {
	var mu sync.Mutex
	exists := map[string]string{}
	r.api.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := string(action.(clienttesting.PatchAction).GetPatch())
		if _, after, found := strings.Cut(patch, `"`+contract.RevisionAnnotation+`":"`); found {
			version, _, _ := strings.Cut(after, `"`)
			mu.Lock()
			defer mu.Unlock()
			exists[version] = *r.running.Load()
		}
		return false, nil, nil
	})
	return func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return exists
	}
}

func TestAnotherDaemonTakesOverAndProvesItself(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		settled(t, r)
		who := r.writers()
		version := r.publish(t, withDaemon(another("two"), newDaemon))
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(30 * time.Second)
		r.expectStatus(t, version, "")
		if got := r.read(t, contract.PathDaemon); got != newDaemon || r.replaced.Load() != 1 {
			t.Errorf("the program is %q after %d replacements", got, r.replaced.Load())
		}
		if who()[version] != digestOf(newDaemon) {
			t.Error("the old daemon reported that the revision holds")
		}
		r.expectNoLeftovers(t)
		// The operator wants the first revision again.
		r.annotate(t, contract.DesiredRevisionAnnotation, versionOf(first()))
		pass(30 * time.Second)
		r.expectStatus(t, versionOf(first()), "")
		if got := r.read(t, contract.PathDaemon); got != oldDaemon || r.replaced.Load() != 2 {
			t.Errorf("the program is %q after %d replacements", got, r.replaced.Load())
		}
	})
}

func TestADaemonThatDoesNotRunHereIsRefusedBeforeAnythingChanges(t *testing.T) {
	for name, exe := range map[string]string{"it ends with an error": "MZ broken", "it hangs": "MZ hangs",
		"it is no program": "not MZ"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				settled(t, r)
				r.write(t, contract.DirStore+`\`+digestOf(exe), exe)
				before := r.Snapshot()
				version := r.publish(t, withDaemon(another("two"), exe))
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				pass(5 * time.Minute)
				r.expectStatus(t, versionOf(first()), contract.ReasonDaemonCallFailed)
				for _, line := range sim.Diff(before, r.Snapshot(), own()...) {
					t.Error(line)
				}
				if r.replaced.Load() > 0 {
					t.Error("the daemon was replaced")
				}
				r.expectServing(t, "{}")
			})
		})
	}
}

func TestADaemonThatIsStoppedWhileItTriesAnotherBlamesNoRevision(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		settled(t, r)
		r.slow.Store(true)
		version := r.publish(t, withDaemon(another("two"), newDaemon))
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(30 * time.Second)
		r.stopDaemon()
		stateFile, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		if stateFile.Failed != nil {
			t.Errorf("version %s failed: %v", stateFile.Failed.Name, stateFile.Failed.Problem)
		}
		r.slow.Store(false)
		r.start(t, r.api)
		for range 600 {
			pass(100 * time.Millisecond)
			if exists := r.annotations(t)[contract.ApplyStatusAnnotation]; exists != "" {
				t.Errorf("the Node reports %q", exists)
				break
			}
		}
		r.expectStatus(t, version, "")
	})
}

func TestTheOldDaemonComesBackWithWhatHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		settled(t, r)
		before := r.Snapshot()
		r.picky.Store(true)
		version := r.publish(t, withDaemon(another("two"), newDaemon))
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(30 * time.Second)
		r.expectStatus(t, versionOf(first()), contract.ReasonServiceFailed)
		if status := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.Contains(status, version) ||
			!strings.Contains(status, "held at "+versionOf(first())) {
			t.Errorf("the Node reports %q", status)
		}
		if got := r.read(t, contract.PathDaemon); got != oldDaemon || r.replaced.Load() != 2 ||
			*r.running.Load() != digestOf(oldDaemon) {
			t.Errorf("the program is %q after %d replacements", got, r.replaced.Load())
		}
		for _, line := range sim.Diff(before, r.Snapshot(), own()...) {
			t.Error(line)
		}
		// The two daemons must not alternate without pauses: the pause before each attempt is longer than the one
		// before. Even with the shortest possible pauses, there are only eight attempts, each with two replacements.
		// The ninth attempt starts after 73 minutes at the earliest.
		pass(time.Hour)
		if n := r.replaced.Load(); n > 16 {
			t.Errorf("%d replacements within an hour", n)
		}
		r.picky.Store(false)
		pass(25 * time.Minute)
		r.expectStatus(t, version, "")
		if got := r.read(t, contract.PathDaemon); got != newDaemon {
			t.Errorf("the program is %q", got)
		}
	})
}

func TestADaemonKilledAtAnyStepOfItsReplacementIsFollowedByTheRightOne(t *testing.T) {
	t.Parallel()
	for name, picky := range map[string]bool{"for good": false, "and back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want sim.Snapshot
			var changes int64
			replaceProgram := func(t *testing.T, r *rig, at int64) string {
				t.Helper()
				settled(t, r)
				r.stopDaemon()
				r.picky.Store(picky)
				version := r.publish(t, withDaemon(another("two"), newDaemon))
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				r.mortal = &mortal{at: at}
				r.start(t, r.api)
				pass(15 * time.Second) // even twice this time is shorter than the pause before the next attempt
				return version
			}
			t.Run("without a crash", func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					replaceProgram(t, r, 0)
					want, changes = r.Snapshot(), r.mortal.calls
				})
			})
			t.Logf("%d changes", changes)
			for at := int64(1); at <= changes; at++ {
				t.Run(fmt.Sprintf("before change %d", at), func(t *testing.T) {
					inBubble(t, func(t *testing.T, r *rig) {
						who := r.writers()
						version := replaceProgram(t, r, at)
						r.stopDaemon()
						r.mortal = nil
						r.start(t, r.api)
						pass(15 * time.Second)
						for _, line := range sim.Diff(want, r.Snapshot(), own()...) {
							t.Error(line)
						}
						r.expectNoLeftovers(t)
						if picky {
							r.expectStatus(t, versionOf(first()), contract.ReasonServiceFailed)
							return
						}
						r.expectStatus(t, version, "")
						if who()[version] != digestOf(newDaemon) {
							t.Error("the old daemon reported that the revision holds")
						}
					})
				})
			}
		})
	}
}

// released publishes a revision of a newer release. The revision contains settings that this release doesn't know or
// can't apply.
func (r *rig) released(t *testing.T, m contract.Manifest, services func(string) string) (version string) {
	t.Helper()
	version, data := releasedData(t, m, services)
	r.publishData(t, version, data)
	return version
}

func releasedData(t *testing.T, m contract.Manifest, services func(string) string) (version string,
	data map[string]string) {
	t.Helper()
	data, err := m.Data()
	if err != nil {
		t.Fatal(err)
	}
	data[contract.KeyServices] = services(data[contract.KeyServices])
	data["volumes"] = `[{"letter":"D"}]`
	return "0.2.0-" + contract.DataDigest(data)[:contract.RevisionDigits], data
}

// onlyForAnotherDaemon changes the services of a manifest so that this release refuses the manifest.
func onlyForAnotherDaemon(services string) string {
	return strings.Replace(services, `{"name":"kubelet"`,
		`{"hostVariablesInCommand":[{"name":"X","fact":"moon"}],"priority":"first","name":"kubelet"`, 1)
}

func TestWhatAnotherReleaseSaysMoreIsIgnored(t *testing.T) {
	for name, exe := range map[string]string{"with the same daemon": oldDaemon, "with another daemon": newDaemon} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				settled(t, r)
				version := r.released(t, withDaemon(another("two"), exe), func(services string) string {
					return strings.Replace(services, `{"name":"kubelet"`, `{"memory":{"limit":"8Gi"},"name":"kubelet"`,
						1)
				})
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				pass(time.Minute)
				r.expectStatus(t, version, "")
				r.expectServing(t, "two")
				r.api.ClearActions()
				pass(10 * time.Minute)
				if n := len(r.api.Actions()); n > 12 {
					t.Errorf("%d requests without a change", n)
				}
				// After a restart, the daemon reads the revision again, with the same result.
				starts := r.starts.Load()
				r.stopDaemon()
				r.start(t, r.api)
				pass(time.Minute)
				r.expectStatus(t, version, "")
				if r.starts.Load() != starts {
					t.Error("kube-proxy was restarted")
				}
			})
		})
	}
}

func TestWhatOnlyAnotherDaemonUnderstandsIsLeftToIt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		settled(t, r)
		version := r.released(t, withDaemon(another("two"), newDaemon), onlyForAnotherDaemon)
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(40 * time.Second) // the second attempt begins 48 s after the first one, or later
		// In this test, the other daemon can't parse the revision either. So the other daemon gives up, which restores
		// the old daemon and the first revision.
		if r.replaced.Load() < 2 {
			t.Errorf("the program was replaced %d times", r.replaced.Load())
		}
		if got := r.read(t, contract.PathDaemon); got != oldDaemon {
			t.Errorf("the program is %q", got)
		}
		r.expectStatus(t, versionOf(first()), contract.ReasonManifestInvalid)
		r.expectServing(t, "{}")
		pass(time.Hour)
		// Each attempt replaces the program, and its failure replaces the program again. The pauses grow from 1 to 20
		// minutes, and each may be a fifth shorter. So there are at most eight attempts in this time.
		if n := r.replaced.Load(); n > 16 {
			t.Errorf("%d replacements within an hour", n)
		}
	})
}
