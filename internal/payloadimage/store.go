package payloadimage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// DefaultLimit is how large a payload may be. One with four minor versions of Kubernetes has 0.8 GB.
const DefaultLimit = 2 << 30

// How long to wait after a pull that failed: first, and at most.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 2 * time.Minute
)

// Options of a Store.
type Options struct {
	// Dir is where pulled payloads lie. It must be writable once an image is wanted.
	Dir string
	// Embedded is used where no image is wanted.
	Embedded *payload.Dir
	// Limit is how many bytes a payload may have; DefaultLimit when 0.
	Limit int64
}

// Store is the payload in use, with the blobs of those that were in use before.
//
// Where an image is wanted, nothing else takes its place: an operator that was started anew would
// otherwise take all nodes to its embedded payload and back, or to an image that an earlier process
// pulled long ago. A process that has had a payload in use goes on with it until the image is there.
type Store struct {
	Options
	// what tests make shorter
	answerTime time.Duration
	retry      wait.Backoff
	// wake has one element when the wanted image or the way there changed.
	wake    chan struct{}
	changed chan event.GenericEvent

	mu sync.Mutex
	// wanted is the image, or empty, and access how it is reached.
	wanted string
	access Access
	// image is where current is from; empty for the embedded payload. current is nil while there is none.
	image   string
	current *payload.Dir
	// before was in use before current, and is not the embedded one; nil for none. At the start it is
	// what an earlier process pulled last, from the image left.
	before *payload.Dir
	left   string
	// failed is why the wanted image is not there.
	failed *contract.Problem
	cancel context.CancelFunc
}

// New makes a store. What an earlier process pulled last is served, if it is whole, and in use again
// once Want says that it is wanted.
func New(ctx context.Context, o Options) (*Store, error) {
	if o.Embedded == nil || o.Dir == "" {
		return nil, errors.New("making a store of payloads: an option is missing")
	}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	s := &Store{
		Options: o, answerTime: answerTime,
		retry:   wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.1, Steps: 20, Cap: lastRetry},
		wake:    make(chan struct{}, 1),
		changed: make(chan event.GenericEvent, 1),
	}
	if digest, err := os.ReadFile(s.lastPath()); err == nil {
		if s.before = s.open(ctx, string(digest)); s.before != nil {
			s.left = string(digest)
		}
	}
	return s, nil
}

// lastPath is the file with the digest of the image that was in use last.
func (s *Store) lastPath() string { return filepath.Join(s.Dir, "last") }

// open gives a pulled payload, or nil. What is not whole is removed, so that it is pulled again.
func (s *Store) open(ctx context.Context, digest string) *payload.Dir {
	if !strings.HasPrefix(digest, "sha256:") || strings.ContainsAny(digest, `/\`) {
		return nil
	}
	dir, err := payload.OpenManifest(s.Dir, manifestName(digest))
	if err != nil {
		return nil
	}
	if err = dir.Verify(ctx); err != nil && ctx.Err() == nil {
		logf.FromContext(ctx).Info("a pulled payload is damaged, so it is pulled again", "digest", digest,
			"reason", err.Error())
		for _, b := range dir.Manifest().Blobs() {
			_ = os.Remove(filepath.Join(blobDir(s.Dir), b.Digest))
		}
	}
	if err != nil {
		return nil
	}
	return dir
}

// Want says which image is wanted, and how it is reached; empty for the embedded payload. It answers
// what is in use, or nil, and why that is not what is wanted. It does not wait: see Changed. A repeated
// call changes nothing.
func (s *Store) Want(image string, access Access) (*payload.Dir, *contract.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if image != "" {
		if err := Check(image); err != nil {
			problem, _ := contract.AsProblem(err)
			return s.current, problem
		}
	}
	s.access = access
	if image != s.wanted {
		s.wanted, s.failed = image, nil
		if s.cancel != nil {
			s.cancel()
		}
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	switch {
	case image == "":
		s.use("", s.Embedded)
	case s.current == nil && digestOf(image) == s.left:
		s.use(s.left, s.before)
	}
	switch {
	case image == "" || digestOf(image) == s.image:
		return s.current, nil
	case s.failed != nil:
		return s.current, s.failed
	case s.current == nil:
		return nil, contract.NewProblem(contract.ReasonPayloadImageNotPulled, "%s is being pulled", image)
	}
	return s.current, nil
}

// use makes a payload the one in use. The caller has the lock.
func (s *Store) use(image string, dir *payload.Dir) {
	if s.image != "" && s.image != image {
		s.before = s.current
	}
	s.image, s.current = image, dir
}

func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

// Changed gets an event, about the WindowsMachineConfig, whenever Want would answer otherwise than
// before.
func (s *Store) Changed() <-chan event.GenericEvent { return s.changed }

func (s *Store) tell() {
	select {
	case s.changed <- event.GenericEvent{Object: &v1alpha1.WindowsMachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}}:
	default: // one is waiting there already
	}
}

// Start pulls what is wanted until ctx ends.
func (s *Store) Start(ctx context.Context) error {
	retry := s.retry
	for {
		image, access, pulling := s.next(ctx)
		var again <-chan time.Time
		if image != "" {
			err := s.pull(pulling, image, access)
			if s.settle(ctx, image, err) {
				again = time.After(retry.Step())
			} else {
				retry = s.retry
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-s.wake:
			retry = s.retry
		}
	}
}

// next is the image that must be pulled, or empty, and a context that ends when another is wanted.
func (s *Store) next(ctx context.Context) (string, Access, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
	if s.wanted == "" || digestOf(s.wanted) == s.image {
		return "", Access{}, ctx
	}
	ctx, s.cancel = context.WithCancel(ctx)
	return s.wanted, s.access, ctx
}

// settle notes what became of a pull, and whether it must be tried again.
func (s *Store) settle(ctx context.Context, image string, err error) (again bool) {
	log := logf.FromContext(ctx).WithValues("image", image)
	var dir *payload.Dir
	if err == nil {
		if dir = s.open(ctx, digestOf(image)); dir == nil {
			err = contract.NewProblem(contract.ReasonPayloadImageNotPulled, "what was pulled of %s is not whole", image)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if image != s.wanted || ctx.Err() != nil {
		return false
	}
	if err != nil {
		log.Info("the payload's image can't be pulled", "reason", err.Error())
		s.failed, _ = contract.AsProblem(err)
		s.tell()
		return true
	}
	log.Info("the payload's image is pulled", "version", dir.Manifest().Version)
	s.failed = nil
	s.use(digestOf(image), dir)
	if err = writeFile(s.lastPath(), strings.NewReader(s.image)); err != nil {
		log.Error(err, "noting which payload is in use")
	}
	s.tell()
	return false
}

// makeRoom removes what neither the payload in use nor the one that is pulled has, so that there are
// never more than two. While none is in use, the one that an earlier process pulled last stays.
func (s *Store) makeRoom(pulled []contract.Blob) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, image := s.current, s.image
	if kept == nil {
		kept, image = s.before, s.left
	} else {
		s.before = nil
	}
	keep := map[string]bool{}
	if kept != nil {
		pulled = append(pulled[:len(pulled):len(pulled)], kept.Manifest().Blobs()...)
	}
	for _, b := range pulled {
		keep[b.Digest] = true
	}
	entries, err := os.ReadDir(blobDir(s.Dir))
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		if !keep[e.Name()] {
			all = append(all, os.Remove(filepath.Join(blobDir(s.Dir), e.Name())))
		}
	}
	manifests, _ := filepath.Glob(filepath.Join(s.Dir, "*.json")) // the pattern is right
	for _, m := range manifests {
		if image == "" || filepath.Base(m) != manifestName(image) {
			all = append(all, os.Remove(m))
		}
	}
	return errors.Join(all...)
}

// Manifest is that of the payload in use, or else of the embedded one.
func (s *Store) Manifest() payload.Manifest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return s.Embedded.Manifest()
	}
	return s.current.Manifest()
}

// Blob finds a blob by its digest, of the payload in use or one that was before.
func (s *Store) Blob(digest string) (payload.Blob, bool) {
	s.mu.Lock()
	all := []*payload.Dir{s.current, s.before, s.Embedded}
	s.mu.Unlock()
	for _, d := range slices.DeleteFunc(all, func(d *payload.Dir) bool { return d == nil }) {
		if b, found := d.Blob(digest); found {
			return b, true
		}
	}
	return payload.Blob{}, false
}

// Select gives the blobs with these digests, in this order. The error is a *contract.Problem.
func (s *Store) Select(wanted []contract.Blob) ([]payload.Blob, error) {
	return payload.Select(s, wanted)
}
