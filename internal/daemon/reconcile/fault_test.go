package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// The daemon decides to roll back, but can't write the state file: a virus scanner has the file open, or the disk is
// full. The daemon must not change its decision.
func TestARevisionThatFailedIsNeverReportedAsHeldWhenTheStateFileCanNotBeWritten(t *testing.T) {
	for name, spoil := range map[string]func(r *rig){
		"a service ends right after its start": func(r *rig) { r.touchy.Store(true) },
		"a service refuses its configuration":  func(r *rig) { r.picky.Store(true) },
	} {
		for from := 100 * time.Millisecond; from < 4*time.Second; from += 400 * time.Millisecond {
			t.Run(fmt.Sprintf("%s, and the file can't be written after %s", name, from), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					holds(t, r)
					spoil(r)
					two := r.publish(t, another("two"))
					r.annotate(t, contract.DesiredRevisionAnnotation, two)
					pass(from)
					r.SetPathFault(contract.PathState+".tmp", winos.ErrInUse)
					for i := range 230 {
						pass(100 * time.Millisecond)
						if i == 30 {
							r.SetPathFault(contract.PathState+".tmp", nil)
						}
						if held := r.annotations(t)[contract.RevisionAnnotation]; held != one() {
							t.Errorf("after %d00 ms the Node reports that revision %s holds", i, held)
							break
						}
					}
					r.expectStatus(t, one(), contract.ReasonServiceFailed)
					r.expectServing(t, "{}")
					stateFile, err := state.Read(r.Host().Files)
					if err != nil || stateFile.Revision.Name != one() || stateFile.Failed == nil ||
						stateFile.Failed.Name != two {
						t.Errorf("the state file has revision %s and failed revision %v, %v", stateFile.Revision.Name,
							stateFile.Failed, err)
					}
				})
			})
		}
	}
}

func TestATimeThatAWrongClockWroteDelaysNoLongerThanTheLongestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.picky.Store(true)
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(10 * time.Second)
		r.expectStatus(t, one(), contract.ReasonServiceFailed)
		r.stopDaemon()
		stateFile, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		stateFile.Failed.Until, stateFile.Failed.Pause = time.Now().Add(10*365*24*time.Hour), 10*365*24*time.Hour
		if err = stateFile.Save(); err != nil {
			t.Fatal(err)
		}
		r.picky.Store(false)
		r.start(t, r.api)
		pass(25 * time.Minute)
		r.expectStatus(t, two, "")
		r.expectServing(t, "two")
	})
}

// A user deletes the state file. The running daemon has the state in memory, and must write the file again.
func TestAStateFileThatSomebodyDeletesUnderTheDaemonIsWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		before, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		if err = r.Host().Files.Remove(contract.PathState); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Minute)
		r.stopDaemon()
		r.start(t, r.api)
		pass(time.Minute)
		after, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before.State, after.State); diff != "" {
			t.Error(diff)
		}
	})
}

// The daemon was replaced while the host's first revision was on trial, and the new daemon can't parse this revision.
// It must not stop any service because of that.
func TestNothingIsTakenAwayForAFirstRevisionThatIsNotUnderstood(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.stopDaemon()
		stateFile, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		version, data := releasedData(t, another("two"), onlyForAnotherDaemon)
		stateFile.Revision = state.Revision{Name: version, Manifest: contract.Manifest{Files: manifest().Files},
			Data: data}
		stateFile.Verified, stateFile.Before = false, nil
		if err = stateFile.Save(); err != nil {
			t.Fatal(err)
		}
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		r.start(t, r.api)
		pass(10 * time.Minute)
		for _, s := range manifest().Services {
			if now := r.state(t, s.Name); now != winos.ServiceRunning {
				t.Errorf("%s is %s", s.Name, now)
			}
		}
		r.expectStatus(t, one(), contract.ReasonManifestInvalid)
		r.annotate(t, contract.DesiredRevisionAnnotation, one())
		pass(time.Minute)
		r.expectStatus(t, one(), "")
		r.expectServing(t, "{}")
	})
}

// The state file contains a revision that an older daemon could parse only in part. A newer daemon must parse all of
// it, even if the API server is unreachable.
func TestWhatAnOlderDaemonDidNotUnderstandIsReadWithoutTheAPIServer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.stopDaemon()
		stateFile, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		version, data := releasedData(t, another("two"), func(services string) string { return services })
		before := stateFile.Revision
		stateFile.Revision = state.Revision{Name: version, Manifest: contract.Manifest{Files: manifest().Files},
			Data: data}
		stateFile.Verified, stateFile.Before = false, &before
		if err = stateFile.Save(); err != nil {
			t.Fatal(err)
		}
		r.start(t, nil)
		pass(time.Minute)
		r.expectServing(t, "two")
	})
}

// A service is stopped, but its program does not end. The daemon must end the process instead of waiting in every pass.
func TestA42_ARevisionIsNotLostForAServiceThatDoesNotEnd(t *testing.T) {
	for name, fault := range map[string]func(r *rig){
		"the service never reports that it has stopped":                  func(r *rig) { r.HangStop("kube-proxy", true) },
		"the service reports that it has stopped, but its process stays": func(r *rig) { r.StopLinger("kube-proxy", 24*time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				fault(r)
				two := r.publish(t, another("two"))
				r.annotate(t, contract.DesiredRevisionAnnotation, two)
				pass(3 * time.Minute)
				r.expectStatus(t, two, "")
				r.expectServing(t, "two")
			})
		})
	}
}
