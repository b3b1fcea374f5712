package resolver

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// Whoever may name an image decides which hosts are asked, and those say what they like.
func TestWhatUnknownHostsAnswerTakesLittleMemory(t *testing.T) { //nolint:paralleltest // counts the heap
	padding := strings.Repeat("x", 60_000)
	way := roundTrip(func(request *http.Request) (*http.Response, error) {
		r := &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: request,
			Header: http.Header{"Www-Authenticate": {fmt.Sprintf(`bearer realm="https://%s/token",service="s",x="%s"`,
				request.URL.Host, padding)}}}
		if request.URL.Path == "/token" {
			r.StatusCode, r.Body = http.StatusOK, io.NopCloser(strings.NewReader(`{"token":"`+padding+`"}`))
		}
		return r, nil
	})
	o := Options{}.defaults()
	k := newKeyring(newTransports(o, Config{}), func(string) bool { return false }, o)
	before := heap()
	for n := range grants {
		at := mirror.Pull{Host: fmt.Sprintf("h%d.test", n%hosts), Repository: fmt.Sprintf("r%d", n)}
		proof, err := k.proof(t.Context(), at, way, mirror.Credential{})
		if err != nil || proof.header != "Bearer "+padding {
			t.Fatalf("a proof of %d bytes, %v", len(proof.header), err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at.Host+"/v2/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		refusal, err := way(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = refusal.Body.Close()
		if late := proofless(proof); !k.learn(t.Context(), at, way, late, refusal) {
			t.Fatal("it asks for a token, and is not given one")
		}
	}
	if kept := heap() - before; kept > 4<<20 {
		t.Errorf("%d MiB are kept of what %d hosts answered", kept>>20, hosts)
	}
	runtime.KeepAlive(k)
}

// proofless is what was sent to a registry that had asked for nothing.
func proofless(p proof) proof { return proof{grant: p.grant, fresh: true} }

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // fits
}
