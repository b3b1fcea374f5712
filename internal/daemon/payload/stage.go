package payload

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Pauses between failed attempts.
const (
	shortestPause = time.Second
	firstPause    = 5 * time.Second
	lastPause     = 2 * time.Minute
	// stayedAfter: a blob that disappears later than this is fetched again at once, because its fetch wasn't the cause.
	stayedAfter = time.Hour
)

// StagerOptions of a Stager. All are required.
type StagerOptions struct {
	Host winos.Host
	// Client connects to the API server as this node's daemon.
	Client dynamic.Interface
	// Node is the watch of the daemon's own Node. The caller runs it.
	Node *apiclient.Watch
	// Namespace is the namespace of the manifests and of the ConfigMap that names the sources.
	Namespace string
	// Source returns a source with the addresses and the certificates (PEM) that the operator published.
	Source func(urls []string, ca []byte) (Source, error)
	// Fetched is called when an attempt to fetch the blobs of Need ends. It must not block.
	Fetched func()
	Clock   clock.Clock
}

// Stager fetches payload for one host.
type Stager struct {
	StagerOptions
	store *Store
	wake  chan struct{}

	mu   sync.Mutex
	need *need
	// met is the last need that was fulfilled.
	met *need
	// blobs are the payload of the revision in manifest, which was staged last.
	manifest string
	blobs    []contract.Blob
	// received counts the bytes for the revision in counted.
	counted  string
	received int64
}

// need is the payload that the reconcile loop lacks.
type need struct {
	revision string
	blobs    []contract.Blob
	// over reports that it was tried, and problem why it failed.
	over    bool
	problem *contract.Problem
	// came is when all blobs had arrived. If some have disappeared since, they are fetched again at due, after a pause.
	came, due time.Time
	pause     time.Duration
}

// NewStager returns a Stager.
func NewStager(options StagerOptions) *Stager {
	s := &Stager{StagerOptions: options, store: NewStore(options.Host.Files), wake: make(chan struct{}, 1)}
	options.Node.Wake(s.wake)
	return s
}

// Need requests the blobs of a revision, before anything else. over reports that fetching was tried since the first
// request, and problem why it failed. The Stager retries until Content is called. Call Need only while a blob is
// missing. It may be called repeatedly.
func (s *Stager) Need(revision string, blobs []contract.Blob) (over bool, problem *contract.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := cmp.Or(s.need, s.met)
	switch {
	case n == nil || n.revision != revision || !slices.Equal(n.blobs, blobs) ||
		n.met() && s.Clock.Since(n.came) > stayedAfter:
		n = &need{revision: revision, blobs: slices.Clone(blobs)}
		loop.Signal(s.wake)
	case n.met():
		n.problem = contract.NewProblem(contract.ReasonPayloadIncomplete, "payload of revision %s was fetched and did "+
			"not stay in %s; does a virus scanner remove it?", revision, contract.DirStore)
		n.pause = loop.Grow(n.pause, 2, firstPause, lastPause)
		n.due = s.Clock.Now().Add(loop.Jitter(n.pause))
		loop.Signal(s.wake)
	}
	s.need = n
	return n.over, n.problem
}

// met reports that all blobs have arrived.
func (n *need) met() bool { return n.over && n.problem == nil }

// Content drops the pending request of Need.
func (s *Stager) Content() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.need == nil {
		return
	}
	switch {
	case s.need.met():
		s.met = s.need
	case s.need == s.met: // the blobs disappeared and came back from elsewhere
		s.met = nil
	}
	s.need = nil
	loop.Signal(s.wake)
}

// Keeps returns the digests of the blobs that must stay in the store. known is false while they are unknown.
func (s *Stager) Keeps() (digests map[string]bool, known bool) {
	node, seen := s.Node.Get()
	revision := ""
	if node != nil {
		revision = node.GetAnnotations()[contract.StageAnnotation]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	digests = map[string]bool{}
	if s.need != nil {
		for _, b := range s.need.blobs {
			digests[b.Digest] = true
		}
	}
	if revision == "" {
		return digests, seen
	}
	for _, b := range s.blobs {
		digests[b.Digest] = true
	}
	return digests, s.manifest == revision
}

// task is the work to do.
type task struct {
	need  *need
	stage string
}

// errand is a running task.
type errand struct {
	task
	stop context.CancelFunc
	// done receives the result.
	done chan error
}

// end stops an errand and discards its result.
func (e *errand) end() {
	e.stop()
	<-e.done //nolint:errcheck // the result is discarded
}

// Run fetches the requested payload, until ctx ends.
func (s *Stager) Run(ctx context.Context) {
	var under *errand
	var tried task
	var pause time.Duration
	var again time.Time
	for ctx.Err() == nil {
		want, open, due := s.wanted(tried)
		if under != nil && under.task != want {
			// The current request comes first. Blobs that have arrived stay.
			under.end()
			under = nil
		}
		if want != tried {
			pause, again = 0, time.Time{}
		}
		if want.stage == tried.stage && due.After(again) {
			again = due
		}
		wait := time.Duration(-1)
		if under == nil && open {
			if wait = again.Sub(s.Clock.Now()); wait <= 0 {
				under, tried, wait = s.begin(ctx, want), want, -1
			}
		}
		over, err := s.await(ctx, under, wait)
		if !over {
			continue
		}
		// Pause even after a success, because the watch may show the write to the Node only later.
		under = nil
		if pause = loop.Grow(pause, 2, firstPause, lastPause); err == nil {
			pause = 0
		}
		again = s.Clock.Now().Add(loop.Jitter(max(pause, shortestPause)))
	}
	if under != nil {
		under.end()
	}
}

func (s *Stager) begin(ctx context.Context, t task) *errand {
	ctx, stop := context.WithCancel(ctx)
	e := &errand{task: t, stop: stop, done: make(chan error, 1)}
	go func() {
		defer stop()
		e.done <- s.do(ctx, t)
	}()
	return e
}

// await returns when the errand ends, when a watch sees a change, or after wait, if wait is not negative. err is the
// errand's error.
func (s *Stager) await(ctx context.Context, e *errand, wait time.Duration) (over bool, err error) {
	var done <-chan error
	if e != nil {
		done = e.done
	}
	var due <-chan time.Time
	if wait >= 0 {
		timer := s.Clock.NewTimer(wait)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case err = <-done:
		return true, err
	case <-ctx.Done():
	case <-s.wake:
	case <-due:
	}
	return false, nil
}

// wanted returns the work to do, and the earliest time for it. open reports whether some of it must still be done or
// reported.
func (s *Stager) wanted(tried task) (want task, open bool, due time.Time) {
	node, _ := s.Node.Get()
	s.mu.Lock()
	defer s.mu.Unlock()
	want.need = s.need
	if s.need != nil {
		open, due = !s.need.met(), s.need.due
	}
	if node == nil {
		return want, open, due
	}
	want.stage = node.GetAnnotations()[contract.StageAnnotation]
	return want, open || want.stage != tried.stage || unsaid(node, want.stage), due
}

// unsaid reports whether the Node doesn't show the status of a staged revision yet.
func unsaid(node *unstructured.Unstructured, revision string) bool {
	a := node.GetAnnotations()
	_, status := a[contract.StageStatusAnnotation]
	return status || revision != "" && a[contract.StagedAnnotation] != revision
}

// do fetches, and reports the result. If it returns an error, the caller retries.
func (s *Stager) do(ctx context.Context, t task) error {
	var failed error
	if n := t.need; n != nil {
		_, err := s.fetch(ctx, n.revision, n.blobs)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.mu.Lock()
		n.over, n.problem, n.came = true, problem(err), s.Clock.Now()
		s.mu.Unlock()
		s.Fetched()
		failed = err
	}
	if err := s.stage(ctx, t.stage); err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("payload could not be staged", "revision", t.stage, "detail", err.Error())
		failed = errors.Join(failed, err)
	}
	return failed
}
