package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// hold keeps a service open, as the Services console does.
func (r *rig) hold(t *testing.T, name string) (release func()) {
	t.Helper()
	release, err := r.HoldService(name)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// withExporter adds a service to a manifest.
func withExporter(m contract.Manifest) contract.Manifest {
	const path = contract.DirK + `\exporter.exe`
	m.Files = append(m.Files, contract.File{Path: path, Content: "MZ exporter", Services: []string{"exporter"}})
	m.Services = append(m.Services, contract.Service{Name: "exporter", Command: path, Priority: 4})
	return m
}

// If the Services console has a service open, Windows deletes the service only when the console is closed.
// Nevertheless, a revision without this service must be verified.
func TestARevisionHoldsAlthoughSomebodyHasAServiceOpenThatItDoesNotHave(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, withExporter(manifest())))
		pass(10 * time.Second)
		release := r.hold(t, "exporter")
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(15 * time.Second)
		r.expectStatus(t, two, "")
		pass(time.Minute)
		r.expectStatus(t, two, "")
		r.expectServing(t, "two")
		if got := r.state(t, "exporter"); got != winos.ServiceStopped {
			t.Errorf("the service is %s", got)
		}
		if was, err := state.Read(r.Host().Files); err != nil || was.Failed != nil || was.Installed("exporter") {
			t.Errorf("the state file has the failure %v, or the service in it, %v", was.Failed, err)
		}
		again := r.publish(t, withExporter(another("three")))
		r.annotate(t, contract.DesiredRevisionAnnotation, again)
		pass(30 * time.Second)
		r.expectStatus(t, two, contract.ReasonServiceFailed)
		release()
		pass(5 * time.Minute)
		r.expectStatus(t, again, "")
		r.expectServing(t, "three")
	})
}
