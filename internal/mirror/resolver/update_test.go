package resolver_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// TestAnUpdateInTheMiddleOfALayer stops a transfer in the middle of a layer, changes all rules, and continues the
// transfer.
func TestAnUpdateInTheMiddleOfALayer(t *testing.T) {
	t.Parallel()
	m := newImage(1, 4<<20)
	before, after := newUpstream(t, m), newUpstream(t, m)
	goOn := make(chan struct{})
	before.failing(func(w http.ResponseWriter, r *http.Request) bool {
		before.serve(&gate{ResponseWriter: w, left: 1 << 20, open: goOn}, r)
		return true
	})
	g := newRig(t, calm(), config(t, source+" digest "+before.host+"/m never"))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		g.url+"/v2/a/blobs/"+digestOf(m.layer)+"?ns="+source, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(mirror.TokenHeader, mirror.Authorization(token))
	response, err := g.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	g.Update(config(t, source+" digest "+after.host+"/m never"))
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatal(a)
	}
	if before.asked("blobs") != 1 || after.asked("blobs") != 1 {
		t.Errorf("asked %d and %d times", before.asked("blobs"), after.asked("blobs"))
	}
	close(goOn)
	content, err := io.ReadAll(response.Body)
	if a := (answer{status: response.StatusCode, content: content, err: err}); !a.isRight(m.layer) {
		t.Fatal(a)
	}
	if after.asked("blobs") != 1 {
		t.Error("the running transfer changed to the new rules")
	}
}

// gate lets n bytes through. When it is opened, it lets the remaining bytes through.
type gate struct {
	http.ResponseWriter
	left int
	open <-chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	if g.left -= len(p); g.left < 0 {
		_ = http.NewResponseController(g.ResponseWriter).Flush()
		<-g.open
	}
	return g.ResponseWriter.Write(p)
}

// TestUpdatesWhileManyPull changes the rules all the time. Pulls must never fail, because both sets of rules work.
func TestUpdatesWhileManyPull(t *testing.T) {
	t.Parallel()
	m := newImage(1, 2<<20)
	one, two := newUpstream(t, m), newUpstream(t, m)
	g := newRig(t, calm(), config(t, source+" digest "+one.host+"/m never"))
	configs := []resolver.Config{config(t, source+" digest "+two.host+"/m never"),
		config(t, source+" digest "+one.host+"/m never")}
	ctx, stop := context.WithCancel(t.Context())
	var updates, pulls sync.WaitGroup
	updates.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			g.Update(configs[i%2])
		}
	})
	for range 4 {
		pulls.Go(func() {
			for range 15 {
				if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
					t.Error(a)
				}
			}
		})
	}
	pulls.Wait()
	stop()
	updates.Wait()
}
