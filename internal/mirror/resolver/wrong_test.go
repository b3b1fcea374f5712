package resolver_test

import (
	"net/http"
	"testing"

	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// between returns a node with two images, and two mirrors that have both images. The first mirror sends wrong bytes.
func between(t *testing.T) (g *rig, one, two image, lying, other *upstream) {
	t.Helper()
	one, two = newImage(4, 5<<20), newImage(5, 5<<20)
	lying, other = newUpstream(t, one, two), newUpstream(t, one, two)
	g = newRig(t, calm(), config(t, source+" digest "+lying.host+"/m "+other.host+"/n never"))
	lying.failing(changed(lying))
	return g, one, two, lying, other
}

// After a broken transfer, containerd asks again. The resolver must remember the mirror that sent wrong bytes, so
// that the other layers need no second attempt.
func TestA22_AMirrorThatGaveWrongBytesIsAskedLast(t *testing.T) {
	t.Parallel()
	g, one, two, lying, _ := between(t)
	path := "a/blobs/" + digestOf(one.layer)
	if a := g.ask(t, http.MethodGet, source, path); a.err == nil || len(a.content) >= len(one.layer) {
		t.Fatal("the answer looked complete:", a)
	}
	for path, content := range map[string][]byte{path: one.layer, "a/blobs/" + digestOf(two.layer): two.layer} {
		if a := g.ask(t, http.MethodGet, source, path); !a.isRight(content) {
			t.Fatal(a)
		}
	}
	if n := lying.asked("blobs"); n != 1 {
		t.Errorf("the mirror that gave wrong bytes was asked %d times", n)
	}
}

func TestA22_WrongBytesNeverLookComplete(t *testing.T) {
	t.Parallel()
	g, m, _, lying, other := between(t)
	path := "a/blobs/" + digestOf(m.layer)
	other.failing(changed(other))
	for i := range 4 {
		if a := g.ask(t, http.MethodGet, source, path); a.err == nil {
			t.Fatalf("answer %d looked complete: %v", i+1, a)
		}
	}
	reports := g.Reports()
	if len(reports) == 0 || reports[0].Attempts[0].Reason != resolver.ReasonWrongContent {
		t.Errorf("reports %+v", reports)
	}
	lying.failing(nil)
	for range 2 { // the resolver may ask the second mirror first
		if a := g.ask(t, http.MethodGet, source, path); a.isRight(m.layer) {
			return
		}
	}
	t.Error("the mirror that was repaired is not asked")
}
