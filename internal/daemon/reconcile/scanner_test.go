package reconcile_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// scanner simulates a virus scanner. It may remove one program from the store as soon as the program arrives, and may
// hold one file open for some time.
type scanner struct {
	winos.Files
	blob string
	// held is the path of the file that the scanner holds open. time is how long the scanner holds it open, from the
	// first attempt to open, start or remove the file.
	mu    sync.Mutex
	held  string
	since time.Time
	time  time.Duration
}

// opens makes the scanner hold the file at path open from now on.
func (s *scanner) opens(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = path
}

// hasHeld reports whether the file was used while the scanner held it open.
func (s *scanner) hasHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero()
}

func (s *scanner) hold(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path != s.held {
		return nil
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if time.Since(s.since) < s.time {
		return fmt.Errorf("%s: %w", path, winos.ErrInUse)
	}
	return nil
}

// Open implements winos.Files.
func (s *scanner) Open(path string) (io.ReadCloser, error) {
	if err := s.hold(path); err != nil {
		return nil, err
	}
	return s.Files.Open(path)
}

// Remove implements winos.Files.
func (s *scanner) Remove(path string) error {
	if err := s.hold(path); err != nil {
		return err
	}
	return s.Files.Remove(path)
}

// scannedPrograms runs programs whose files a virus scanner may hold open.
type scannedPrograms struct {
	winos.Programs
	by *scanner
}

// Run implements winos.Programs.
func (s scannedPrograms) Run(ctx context.Context, exe string, args ...string) (int, error) {
	if err := s.by.hold(exe); err != nil {
		return 0, fmt.Errorf("%w: %w", winos.ErrStartFailed, err)
	}
	return s.Programs.Run(ctx, exe, args...)
}

// scannedServices manages services whose programs a virus scanner may hold open.
type scannedServices struct {
	winos.Services
	by *scanner
}

// Start implements winos.Services.
func (s scannedServices) Start(ctx context.Context, name string) error {
	if service, err := s.Get(ctx, name); err == nil && service.State == winos.ServiceStopped {
		exe, _, _ := strings.Cut(service.Command, " ")
		if err = s.by.hold(exe); err != nil {
			return fmt.Errorf("starting service %s: %w", name, err)
		}
	}
	return s.Services.Start(ctx, name)
}

func (s *scanner) Rename(from, to string) error {
	err := s.Files.Rename(from, to)
	if err == nil && to == s.blob {
		return s.Remove(to)
	}
	return err
}

func TestAProgramThatAScannerTakesAwayIsNotFetchedWithoutPause(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		r.payloadServer.slow = 2 * time.Second
		r.scanner = &scanner{blob: contract.DirStore + `\` + digestOf(newProxy)}
		holds(t, r)
		version := r.publish(t, next())
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(time.Hour)
		if n := r.payloadServer.count(newProxy); n < 20 || n > 60 {
			t.Errorf("the program was fetched %d times within an hour", n)
		}
		r.expectStatus(t, one(), contract.ReasonPayloadIncomplete)
		if exists := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.Contains(exists, "virus scanner") {
			t.Errorf("the Node reports %q", exists)
		}
		// Another revision is wanted in the meantime. A day later, the payload of the first one is fetched as if it
		// were new.
		r.annotate(t, contract.DesiredRevisionAnnotation, one())
		pass(24 * time.Hour)
		r.expectStatus(t, one(), "")
		r.scanner.blob = "allowed by now"
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(30 * time.Second)
		r.expectStatus(t, version, "")
	})
}

// If a revision failed on one host because of a virus scanner, the operator would stop the rollout to all nodes.
func TestARevisionIsNotGivenUpForAFileThatAScannerHasOpenForAMoment(t *testing.T) {
	for name, c := range map[string]struct {
		held string
		// prepare puts the host into the state that the case needs, and returns the next revision.
		prepare func(t *testing.T, r *rig) (version string)
		// begin starts the scanner while the next revision is applied.
		begin func(r *rig)
	}{
		"a file that is no longer needed": {
			held: hostsFile("b.example"),
			prepare: func(t *testing.T, r *rig) string {
				t.Helper()
				holds(t, r)
				two := r.want(t, manifest(), rules("a.example", "b.example"))
				pass(10 * time.Second)
				r.expectStatus(t, two, "")
				return r.publishBoth(t, another("two"), rules("a.example"))
			},
		},
		"a file that another daemon reads first": {
			held: contract.PathKubelet,
			prepare: func(t *testing.T, r *rig) string {
				t.Helper()
				settled(t, r)
				return r.publish(t, withDaemon(another("two"), newDaemon))
			},
			begin: func(r *rig) {
				for range 600 {
					if r.replaced.Load() == 0 {
						pass(10 * time.Millisecond)
					}
				}
			},
		},
		"another daemon's program in the store": {
			held: contract.DirStore + `\` + digestOf(newDaemon),
			prepare: func(t *testing.T, r *rig) string {
				t.Helper()
				settled(t, r)
				return r.publish(t, withDaemon(another("two"), newDaemon))
			},
		},
		"another daemon's program that is tried": {
			held: contract.DirStore + `\` + contract.ServiceDaemon + ".exe",
			prepare: func(t *testing.T, r *rig) string {
				t.Helper()
				settled(t, r)
				return r.publish(t, withDaemon(another("two"), newDaemon))
			},
		},
		"a new program that is started": {
			held: contract.PathKubeProxy,
			prepare: func(t *testing.T, r *rig) string {
				t.Helper()
				r.supplied(t, newProxy, newKubelet)
				holds(t, r)
				return r.publish(t, next())
			},
		},
		"a program in the store": {
			held: contract.DirStore + `\` + digestOf(newProxy),
			prepare: func(t *testing.T, r *rig) string {
				t.Helper()
				r.supplied(t, newProxy, newKubelet)
				holds(t, r)
				return r.publish(t, next())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.scanner = &scanner{time: 300 * time.Millisecond}
				version := c.prepare(t, r)
				if c.begin == nil {
					r.scanner.opens(c.held)
				}
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				if c.begin != nil {
					c.begin(r)
					r.scanner.opens(c.held)
				}
				for range 1000 {
					pass(20 * time.Millisecond)
					if exists := r.annotations(t)[contract.ApplyStatusAnnotation]; exists != "" {
						t.Errorf("the Node reports %q", exists)
						break
					}
				}
				r.expectStatus(t, version, "")
				if !r.scanner.hasHeld() {
					t.Error("the scanner held no file, so the test shows nothing")
				}
			})
		})
	}
}

// A file of the old revision can't be removed. The programs still run correctly.
func TestARevisionIsNotGivenUpForAFileThatCanNotBeRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.scanner = &scanner{time: 2 * time.Minute}
		holds(t, r)
		two := r.want(t, manifest(), rules("a.example", "b.example"))
		pass(10 * time.Second)
		r.expectStatus(t, two, "")
		r.scanner.opens(hostsFile("b.example"))
		three := r.want(t, another("two"), rules("a.example"))
		pass(time.Minute)
		r.expectServing(t, "two")
		r.expectStatus(t, two, contract.ReasonFileFailed)
		pass(10 * time.Minute)
		r.expectStatus(t, three, "")
		if left := r.read(t, hostsFile("b.example")); left != "absent" {
			t.Errorf("containerd's rules are %q", left)
		}
	})
}
