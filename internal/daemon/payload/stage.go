package payload

import (
	"context"
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

// Pauses between attempts for the same revision.
const (
	firstPause = 5 * time.Second
	lastPause  = 2 * time.Minute
	// If a blob was in the store for at least stayedAfter, the Stager fetches it again at once. If the blob disappears
	// earlier, another program probably removes it after each fetch, so the Stager pauses first.
	stayedAfter = time.Hour
)

// StagerOptions are the options of a Stager. All are required.
type StagerOptions struct {
	Host winos.Host
	// Client connects to the API server as this node's daemon.
	Client dynamic.Interface
	// Node is the watch of the daemon's own Node. The caller must run it.
	Node *apiclient.Watch
	// Namespace is the namespace of the manifests and of the ConfigMap that names the sources.
	Namespace string
	// Source creates a payload source from the URLs and the CA certificates (PEM) that the operator published.
	Source func(urls []string, ca []byte) (Source, error)
	// Fetched is called after each attempt to fetch blobs for a call of Need. It must not block.
	Fetched func()
	Clock   clock.Clock
}

// Stager fetches payload for one host.
type Stager struct {
	StagerOptions
	store *Store
	wake  chan struct{}

	// `tried` is the task of the latest attempt. `again` is the earliest time of the next attempt, and `pause` is the
	// pause before that attempt. Only Run uses these fields.
	tried task
	again time.Time
	pause time.Duration

	mu   sync.Mutex
	need *need
	// `met` is the revision of the last fulfilled request, and metAt is the time when it was fulfilled.
	met   string
	metAt time.Time
	// manifest is the revision whose manifest was read last for staging, and blobs is the payload of this revision.
	manifest string
	blobs    []contract.Blob
	// `received` is the number of bytes that were received for the revision `counted`.
	counted  string
	received int64
}

// need is the reconcile loop's request for missing payload.
type need struct {
	revision string
	blobs    []contract.Blob
	// `over` is true after an attempt to fetch the payload. `problem` is why the attempt failed, or nil.
	over    bool
	problem *contract.Problem
}

// NewStager returns a Stager.
func NewStager(options StagerOptions) *Stager {
	s := &Stager{StagerOptions: options, store: NewStore(options.Host.Files), wake: make(chan struct{}, 1)}
	options.Node.Wake(s.wake)
	return s
}

// Need requests the blobs of a revision. The Stager fetches them before it stages another revision, and retries until
// the method Content is called. If an attempt has ended since the first request, the result `over` is true. The result
// `problem` is why that attempt failed, or nil. Call Need only while a blob is missing. Repeated calls are allowed.
func (s *Stager) Need(revision string, blobs []contract.Blob) (over bool, problem *contract.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.need
	if n == nil || n.revision != revision || !slices.Equal(n.blobs, blobs) || n.isMet() {
		n = &need{revision: revision, blobs: slices.Clone(blobs)}
		if s.met == revision && s.Clock.Since(s.metAt) < stayedAfter {
			n.over, n.problem = true, contract.NewProblem(contract.ReasonPayloadIncomplete, "payload of revision %s "+
				"was fetched and did not stay in %s; does a virus scanner remove it?", revision, contract.DirStore)
		}
		s.need = n
		loop.Signal(s.wake)
	}
	return n.over, n.problem
}

func (n *need) isMet() bool { return n.over && n.problem == nil }

// Content cancels the request of the last Need. Call it when no requested blob is missing.
func (s *Stager) Content() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.need != nil {
		s.need = nil
		loop.Signal(s.wake)
	}
}

// Keeps returns the digests of the blobs that must stay in the store: requested blobs, and the blobs of the revision
// that is being staged. If `known` is false, this revision's blobs are unknown, and no blob may be removed.
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

// task is the work of one attempt: the reconcile loop's request or nil, and the name of the revision to stage or "".
type task struct {
	need  *need
	stage string
}

func (t task) isSame(other task) bool {
	return t.stage == other.stage && (t.need == nil) == (other.need == nil) &&
		(t.need == nil || t.need.revision == other.need.revision)
}

// Run fetches the payload that was requested with Need, and the payload to stage, until ctx ends.
func (s *Stager) Run(ctx context.Context) { loop.Run(ctx, s.Clock, s.wake, s.step) }

// step makes an attempt if one is due, and returns the time until the next check.
func (s *Stager) step(ctx context.Context) time.Duration {
	t, isOpen := s.wanted()
	if !isOpen {
		return time.Hour // a signal ends the wait
	}
	if !t.isSame(s.tried) || s.Clock.Since(s.again) > stayedAfter {
		s.pause, s.again = 0, time.Time{}
	}
	if wait := s.again.Sub(s.Clock.Now()); wait > 0 {
		return wait
	}
	s.tried = t
	s.do(ctx, t)
	// Pause even after a success: the watch may show our write late, and a virus scanner may remove the payload.
	s.pause = loop.Grow(s.pause, 2, firstPause, lastPause)
	s.again = s.Clock.Now().Add(loop.Jitter(s.pause))
	return 0
}

// `wanted` returns the current task. If part of the task must still be done or reported, `isOpen` is true.
func (s *Stager) wanted() (t task, isOpen bool) {
	node, _ := s.Node.Get()
	s.mu.Lock()
	defer s.mu.Unlock()
	t.need = s.need
	isOpen = s.need != nil && !s.need.isMet()
	if node == nil {
		return t, isOpen
	}
	t.stage = node.GetAnnotations()[contract.StageAnnotation]
	return t, isOpen || t.stage != s.tried.stage || isUnreported(node, t.stage)
}

// isUnreported reports whether the Node shows a staging problem, or doesn't show the revision as staged yet.
func isUnreported(node *unstructured.Unstructured, revision string) bool {
	a := node.GetAnnotations()
	_, status := a[contract.StageStatusAnnotation]
	return status || revision != "" && a[contract.StagedAnnotation] != revision
}

// `do` executes a task and reports it. If the wanted task changes, `do` stops and keeps complete blobs.
func (s *Stager) do(ctx context.Context, t task) {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() {
		for report := s.Clock.Now().Add(progressPace); ctx.Err() == nil; {
			isDue := loop.Wait(ctx, s.Clock, s.wake, report.Sub(s.Clock.Now()))
			if now, _ := s.wanted(); now != t {
				stop()
			} else if isDue {
				s.progress(ctx, t.stage)
				report = s.Clock.Now().Add(progressPace)
			}
		}
	})
	if n := t.need; n != nil {
		_, err := s.fetch(ctx, n.revision, n.blobs)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		n.over, n.problem = true, problem(err)
		if err == nil {
			s.met, s.metAt = n.revision, s.Clock.Now()
		}
		s.mu.Unlock()
		s.Fetched()
	}
	if err := s.stage(ctx, t.stage); err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("payload can't be staged", "revision", t.stage, "detail", err.Error())
	}
}
