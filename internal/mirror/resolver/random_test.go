package resolver_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// world is a random set of registries in a random order, with random faults.
type world struct {
	mirrors []*upstream // in order; the last one is the source, if it may be asked
	origin  *upstream
	store   *upstream // some registries redirect to it
	never   bool
	image   image
	users   map[string]string // host → user:password
	rig     *rig
}

// schedule gives each request of a registry a fault or none, depending on a seed.
func schedule(u, store *upstream, seed uint64, badness float64) faultFunc {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 1))
	return func(w http.ResponseWriter, request *http.Request) bool {
		mu.Lock()
		bad, choice, at := r.Float64() < badness, r.IntN(12), r.IntN(2<<20)
		mu.Unlock()
		if !bad {
			return false
		}
		switch choice {
		case 0:
			return status(http.StatusNotFound)(w, request)
		case 1:
			return status(http.StatusServiceUnavailable)(w, request)
		case 2:
			return status(http.StatusForbidden)(w, request)
		case 3:
			return cut(u, at)(w, request)
		case 4:
			return changed(u)(w, request)
		case 5:
			return body(noise(uint64(at), at%5000))(w, request)
		case 6:
			return body(noise(uint64(at), 2<<20), "Transfer-Encoding", "chunked")(w, request)
		case 7, 8:
			http.Redirect(w, request, store.URL+request.URL.Path, http.StatusTemporaryRedirect)
			return true
		case 9:
			http.Redirect(w, request, "http://"+store.host+request.URL.Path, http.StatusTemporaryRedirect)
			return true
		case 10:
			request.Header.Del("Range")
			return false
		}
		panic(http.ErrAbortHandler)
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	w := &world{image: newImage(seed, 2<<20+r.IntN(1<<20)), never: r.IntN(2) == 0, users: map[string]string{}}
	w.store = newUpstream(t, w.image)
	w.origin = newUpstream(t, w.image)
	hosts := make([]string, 0, 5)
	for i := range 1 + r.IntN(4) {
		m := newUpstream(t)
		if r.IntN(4) > 0 {
			m.add(w.image)
		}
		w.mirrors = append(w.mirrors, m)
		hosts = append(hosts, fmt.Sprintf("%s/m%d", m.host, i))
	}
	rule := w.origin.host + " digest " + strings.Join(hosts, " ")
	good := w.mirrors[r.IntN(len(w.mirrors))]
	if w.never {
		rule += " never"
	} else {
		good = w.origin
		w.mirrors = append(w.mirrors, w.origin)
	}
	good.add(w.image)
	secrets := map[string]string{}
	everybody := w.mirrors
	if w.never {
		everybody = append(slices.Clone(everybody), w.origin)
	}
	for i, u := range everybody {
		w.users[u.host] = fmt.Sprintf("user%d:password%d", i, i)
		switch r.IntN(3) {
		case 0:
			u.auth = wantsBasic(w.users[u.host])
		case 1:
			u.auth = (&tokens{user: w.users[u.host]}).wanted(u)
		}
		secrets[u.host] = w.users[u.host]
		if u != good {
			u.failing(schedule(u, w.store, seed+uint64(i), 0.7))
		}
	}
	c := config(t, rule)
	c.PullSecret = secret(t, secrets)
	w.rig = newRig(t, calm(), c)
	return w
}

// TestUnderRandomFaultsBytesAreRightOrThereIsAnError pulls from registries of which one works, while all others fail
// at random.
func TestUnderRandomFaultsBytesAreRightOrThereIsAnError(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			w.first(t)
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() { w.pull(t, seed+uint64(i)) })
			}
			all.Wait()
			w.check(t)
		})
	}
}

// first checks that the very first request tries the registries in order.
func (w *world) first(t *testing.T) {
	t.Helper()
	w.rig.ask(t, http.MethodGet, w.origin.host, "a/manifests/"+digestOf(w.image.index))
	ended := false
	for i, u := range w.mirrors {
		n := u.asked("/v2/")
		if ended && n > 0 {
			t.Errorf("registry %d was asked, but an earlier one was not", i)
		}
		ended = ended || n == 0
	}
}

// pull requests all content in a random order, and retries after failures. One source works, and a source with wrong
// content is tried last in the next attempt. So a pull must succeed after a limited number of attempts. For each blob,
// wrong content may look complete once, because only the client can detect it.
func (w *world) pull(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	parts := []struct {
		path    string
		content []byte
	}{
		{"manifests", w.image.index}, {"manifests", w.image.manifest}, {"blobs", w.image.config},
		{"blobs", w.image.layer},
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for _, part := range parts {
		right, unnoticed := false, 0
		for range len(w.mirrors) + 2 {
			var looks bool
			if looks, right = w.once(t, r, part.path, part.content); right {
				break
			}
			if looks {
				unnoticed++
			}
		}
		if unnoticed > 1 || unnoticed > 0 && part.path == "manifests" {
			t.Errorf("wrong bytes for %s looked complete %d times", part.path, unnoticed)
		}
		if !right {
			t.Errorf("%s was never correct: %s", part.path, w.rig.Reports()[0].Message())
		}
	}
}

// once requests some content, or a part of it. It reports whether the answer looks complete, and whether it is
// right.
func (w *world) once(t *testing.T, r *rand.Rand, path string, content []byte) (looks, right bool) {
	t.Helper()
	var headers []string
	from := 0
	if path == "blobs" && r.IntN(3) == 0 {
		from = r.IntN(len(content))
		headers = []string{"Range", fmt.Sprintf("bytes=%d-", from)}
	}
	a := w.rig.ask(t, http.MethodGet, w.origin.host, "a/"+path+"/"+digestOf(content), headers...)
	if a.err != nil || a.status/100 != 2 {
		return false, false
	}
	if a.status == http.StatusOK {
		from = 0
	}
	// The resolver can't check a part of a blob. containerd checks the whole blob.
	return true, from > 0 || string(a.content) == string(content)
}

// check fails the test if a forbidden request was made.
func (w *world) check(t *testing.T) {
	t.Helper()
	if w.never && len(w.origin.seen()) > 0 {
		t.Errorf("the source was asked %d times", len(w.origin.seen()))
	}
	for _, r := range w.store.seen() {
		if r.Header.Get("Authorization") != "" {
			t.Error("a credential was sent to a redirect's target")
		}
	}
	for _, u := range w.mirrors {
		for _, r := range u.seen() {
			given := r.Header.Get("Authorization")
			if given == mirror.Authorization(token) || strings.HasPrefix(given, "Basic ") &&
				given != basic(w.users[u.host]) {
				t.Errorf("%s got %s", u.host, given)
			}
		}
	}
	for _, r := range w.rig.Reports() {
		for _, a := range r.Attempts {
			if a.Reason == resolver.ReasonForbidden && a.Detail == "" {
				t.Errorf("%+v", r)
			}
		}
	}
}
