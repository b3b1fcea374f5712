package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// scanner takes a program out of the store as soon as it has come.
type scanner struct {
	winos.Files
	blob string
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
			t.Errorf("it was fetched %d times within an hour", n)
		}
		r.expectStatus(t, one(), contract.ReasonPayloadIncomplete)
		if said := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.Contains(said, "virus scanner") {
			t.Errorf("the Node says %q", said)
		}
		// Another revision meanwhile: a day later the first is fetched like one that is new.
		r.annotate(t, contract.DesiredRevisionAnnotation, one())
		pass(24 * time.Hour)
		r.expectStatus(t, one(), "")
		r.scanner.blob = "allowed by now"
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(30 * time.Second)
		r.expectStatus(t, version, "")
	})
}
