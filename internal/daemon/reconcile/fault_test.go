package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// A virus scanner holds the state file open, or the disk is full, while the daemon decides to go
// back: the decision stands all the same.
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
							t.Errorf("after %d00 ms the Node reports that %s holds", i, held)
							break
						}
					}
					r.says(t, one(), contract.ReasonServiceFailed)
					r.serving(t, "{}")
					book, err := state.Read(r.Host().Files)
					if err != nil || book.Version != one() || book.Refused == nil || book.Refused.Version != two {
						t.Errorf("the state file has version %s and failed revision %v, %v", book.Version, book.Refused,
							err)
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
		r.says(t, one(), contract.ReasonServiceFailed)
		r.halt()
		book, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		book.Refused.Until, book.Refused.Pause = time.Now().Add(10*365*24*time.Hour), 10*365*24*time.Hour
		if err = book.Save(); err != nil {
			t.Fatal(err)
		}
		r.picky.Store(false)
		r.tend(t, r.api)
		pass(25 * time.Minute)
		r.says(t, two, "")
		r.serving(t, "two")
	})
}

func TestAStateFileOfZerosIsRebuiltWhileServicesRunOn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.halt()
		pids := map[string]uint32{}
		for _, s := range manifest().Services {
			pids[s.Name] = r.pid(t, s.Name)
		}
		r.write(t, contract.PathState, strings.Repeat("\x00", 2000))
		r.tend(t, nil) // the API server is away at first
		pass(10 * time.Minute)
		for name, pid := range pids {
			if now := r.pid(t, name); now != pid {
				t.Errorf("%s was restarted", name)
			}
		}
		r.halt()
		r.tend(t, r.api)
		pass(time.Minute)
		r.says(t, one(), "")
		r.serving(t, "{}")
		book, err := state.Read(r.Host().Files)
		if err != nil || book.Version != one() || !book.Proven {
			t.Errorf("the state file has version %q, %v", book.Version, err)
		}
	})
}

// A program that does not end when its service is stopped is ended, not waited for again and again.
func TestAServiceThatHangsWhileItStopsIsEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.HangStop("kube-proxy", true)
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(3 * time.Minute)
		r.says(t, two, "")
		r.serving(t, "two")
	})
}
