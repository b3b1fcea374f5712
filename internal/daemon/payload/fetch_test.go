package payload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// source provides blobs. Its script says how it responds to each request. Without a script, it sends everything.
type source struct {
	blobs  map[string][]byte
	script []func(rest []byte) (io.Reader, error)
	mu     sync.Mutex
	asked  []int64
}

// count returns the number of requests so far.
func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (s *source) Open(_ context.Context, digests []string, offset int64) (io.ReadCloser, error) {
	s.mu.Lock()
	s.asked = append(s.asked, offset)
	s.mu.Unlock()
	var rest []byte
	for _, digest := range digests {
		rest = append(rest, s.blobs[digest]...)
	}
	rest = rest[offset:]
	if len(s.script) == 0 {
		return io.NopCloser(bytes.NewReader(rest)), nil
	}
	do := s.script[0]
	s.script = s.script[1:]
	r, err := do(rest)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(r), nil
}

func part(n int) func([]byte) (io.Reader, error) {
	return func(rest []byte) (io.Reader, error) {
		return io.MultiReader(bytes.NewReader(rest[:min(n, len(rest))]), broken{}), nil
	}
}

func refuse(err error) func([]byte) (io.Reader, error) {
	return func([]byte) (io.Reader, error) { return nil, err }
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("reset") }

// rig is a host with a store, and a source of blobs.
type rig struct {
	*payload.Fetcher
	machine *sim.Machine
	source  *source
	want    []contract.Blob
}

func newRig(t *testing.T, contents ...string) *rig {
	t.Helper()
	m, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	files := m.Host().Files
	if err = files.MkdirAll(contract.DirStore, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	r := &rig{machine: m, source: &source{blobs: map[string][]byte{}}}
	for _, content := range contents {
		blob := contract.Blob{Digest: contract.Digest([]byte(content)), Size: int64(len(content))}
		r.source.blobs[blob.Digest], r.want = []byte(content), append(r.want, blob)
	}
	r.Fetcher = &payload.Fetcher{Source: r.source, Store: payload.NewStore(files), System: m.Host().System, Headroom: 1000,
		Clock: hasty{}}
	return r
}

// hasty is a clock without pauses.
type hasty struct{ clock.RealClock }

func (hasty) NewTimer(time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(0) }

func (r *rig) fetch(t *testing.T) (int64, error) {
	t.Helper()
	return r.Fetch(t.Context(), r.want)
}

func (r *rig) missing(t *testing.T) int {
	t.Helper()
	missing, err := payload.NewStore(r.machine.Host().Files).Missing(r.want)
	if err != nil {
		t.Fatal(err)
	}
	return len(missing)
}

func TestOnlyWhatIsMissingIsFetched(t *testing.T) {
	t.Parallel()
	r := newRig(t, "first", "second")
	if n, err := r.fetch(t); n != 11 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	if n, err := r.fetch(t); n != 0 || err != nil || len(r.source.asked) != 1 || r.missing(t) != 0 {
		t.Errorf("again: %d bytes, %v, asked %v", n, err, r.source.asked)
	}
}

func TestAnInterruptedBlobGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Repeat("x", 1000))
	r.source.script = []func([]byte) (io.Reader, error){part(400), refuse(errors.New("away")),
		refuse(&payload.Busy{After: time.Minute}), part(0), part(300)}
	n, err := r.fetch(t)
	if n != 1000 || err != nil || r.missing(t) != 0 {
		t.Fatalf("got %d, %v", n, err)
	}
	for i, want := range []int64{0, 400, 400, 400, 400, 700} {
		if r.source.asked[i] != want {
			t.Errorf("the requests were %v", r.source.asked)
			break
		}
	}
}

// A source may send fewer blobs than requested, for example because it runs an earlier release.
func TestAnAnswerMayEndWithAnyBlob(t *testing.T) {
	t.Parallel()
	r := newRig(t, "first", "second", "third")
	r.Clock = nil // there is no reason to wait
	r.source.script = []func([]byte) (io.Reader, error){
		func(rest []byte) (io.Reader, error) { return bytes.NewReader(rest[:5]), nil },
		func(rest []byte) (io.Reader, error) { return bytes.NewReader(rest[:6+2]), nil },
	}
	if n, err := r.fetch(t); n != 16 || err != nil || r.missing(t) != 0 {
		t.Fatalf("got %d, %v", n, err)
	}
	if fmt.Sprint(r.source.asked) != "[0 0 2]" {
		t.Errorf("the requests were %v", r.source.asked)
	}
}

func TestWhatNeverComesIsGivenUpAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, "blob")
	for range 5 {
		r.source.script = append(r.source.script, refuse(errors.New("away")))
	}
	_, err := r.fetch(t)
	if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonPayloadIncomplete ||
		!strings.Contains(p.Detail, "away") {
		t.Errorf("got %v", err)
	}
	r.wantEmpty(t)
	if _, err = r.fetch(t); err != nil || r.missing(t) != 0 {
		t.Errorf("later: %v", err)
	}
}

func (r *rig) wantEmpty(t *testing.T) {
	t.Helper()
	entries, err := r.machine.Host().Files.List(contract.DirStore)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("the store has %v", entries)
	}
}

func TestWrongBytesAreNotKept(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func([]byte) (io.Reader, error){
		"others": func(rest []byte) (io.Reader, error) {
			return strings.NewReader(strings.Repeat("y", len(rest))),
				nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "blob")
			r.source.script = []func([]byte) (io.Reader, error){lie}
			_, err := r.fetch(t)
			if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonPayloadCorrupt {
				t.Errorf("got %v", err)
			}
			r.wantEmpty(t)
		})
	}
}

func TestTheDiskIsLookedAtFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, "blob")
	r.machine.SetDiskFree(1007)
	_, err := r.fetch(t)
	if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonDiskFull || len(r.source.asked) > 0 {
		t.Errorf("got %v after %v", err, r.source.asked)
	}
}

// No matter how the source fails, the store must contain only correct blobs.
func TestTheStoreHoldsRightBlobsOrNone(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test needs no secret randomness
	for range 50 {
		r := newRig(t, strings.Repeat("a", 1+random.IntN(5000)), strings.Repeat("b", 1+random.IntN(5000)))
		for range random.IntN(8) {
			r.source.script = append(r.source.script, []func([]byte) (io.Reader, error){
				part(random.IntN(3000)), refuse(errors.New("away")), refuse(&payload.Busy{After: time.Second}),
				func(rest []byte) (io.Reader, error) { return bytes.NewReader(append([]byte("?"), rest...)), nil },
			}[random.IntN(4)])
		}
		_, err := r.fetch(t)
		if (err == nil) != (r.missing(t) == 0) {
			t.Fatalf("%v, and %d are missing", err, r.missing(t))
		}
		for _, blob := range r.want {
			content, err := winos.ReadFile(r.machine.Host().Files, contract.DirStore+`\`+blob.Digest)
			if err == nil && !bytes.Equal(content, r.source.blobs[blob.Digest]) {
				t.Fatal("a blob has wrong bytes")
			}
		}
	}
}
