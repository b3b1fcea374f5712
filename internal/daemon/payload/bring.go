package payload

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// headroom is what must be left of the disk for pods and images when all is there and in its place.
const headroom = 1 << 30

// readTimeout bounds one read of a ConfigMap.
const readTimeout = 15 * time.Second

// stage fetches the payload of a revision and says so on the Node, or why not. Without a revision
// nothing is left to be said.
func (s *Stager) stage(ctx context.Context, revision string) error {
	if revision == "" {
		return s.say(ctx, map[string]any{contract.StageStatusAnnotation: nil})
	}
	blobs, err := s.payload(ctx, revision)
	var bytes int64
	if err == nil {
		stop := s.progress(ctx, blobs)
		bytes, err = s.fetch(ctx, revision, blobs)
		stop()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		text := apiclient.ProblemText(problem(err))
		return errors.Join(err, s.say(ctx, map[string]any{contract.StageStatusAnnotation: text}))
	}
	logr.FromContextOrDiscard(ctx).Info("staged", "revision", revision, "bytes", bytes)
	changes := map[string]any{contract.StagedAnnotation: revision, contract.StageStatusAnnotation: nil}
	if bytes > 0 || !s.said(revision) {
		changes[contract.StagedBytesAnnotation] = strconv.FormatInt(bytes, 10)
	}
	return s.say(ctx, changes)
}

// progressPace is how often a fetch that takes long says how far it is. The operator takes a daemon
// for dead that says nothing for several times as long.
const progressPace = time.Minute

// progress says now and then on the Node how much is here, until it is stopped.
func (s *Stager) progress(ctx context.Context, blobs []contract.Blob) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			timer := s.Clock.NewTimer(progressPace)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C():
			}
			missing, err := s.store.Missing(blobs)
			if err == nil {
				text := apiclient.ProblemText(contract.NewProblem(contract.ReasonStaging,
					"%d of %d programs are still to come", len(missing), len(blobs)))
				err = s.say(ctx, map[string]any{contract.StageStatusAnnotation: text})
			}
			if err != nil && ctx.Err() == nil {
				logr.FromContextOrDiscard(ctx).Info("it could not be said how far staging is", "detail", err.Error())
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// said says whether the Node knows already that a revision is staged: a daemon before this one
// counted what came for it.
func (s *Stager) said(revision string) bool {
	node, _ := s.Node.Get()
	return node != nil && node.GetAnnotations()[contract.StagedAnnotation] == revision
}

// say writes to the Node what it does not say already.
func (s *Stager) say(ctx context.Context, changes map[string]any) error {
	node, _ := s.Node.Get()
	if node == nil {
		return nil // a Node that comes back is news
	}
	have, same := node.GetAnnotations(), true
	for name, value := range changes {
		text, said := have[name]
		same = same && (value == nil && !said || said && value == text)
	}
	if same {
		return nil
	}
	_, err := apiclient.AnnotateNode(ctx, s.Client, s.Node, node, changes)
	return err
}

// payload lists the blobs of a revision. It understands those of releases that say more than this
// one knows.
func (s *Stager) payload(ctx context.Context, revision string) ([]contract.Blob, error) {
	s.mu.Lock()
	known, blobs := s.manifest == revision, s.blobs
	s.mu.Unlock()
	if known {
		return blobs, nil
	}
	data, err := s.read(ctx, contract.ServicesConfigMapPrefix+revision)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, contract.NewProblem(contract.ReasonManifestMissing, "there is no ConfigMap %s%s",
			contract.ServicesConfigMapPrefix, revision)
	}
	if !contract.IsRevisionOfData(revision, data) {
		return nil, contract.NewProblem(contract.ReasonManifestInvalid,
			"ConfigMap %s%s does not hold what its name stands for", contract.ServicesConfigMapPrefix, revision)
	}
	files, err := contract.FilesFromConfigMap(data)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifest, s.blobs = revision, contract.Manifest{Files: files}.Blobs()
	return s.blobs, nil
}

// read reads a ConfigMap of the operator's; nil if there is none.
func (s *Stager) read(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	object, _, err := apiclient.Get(ctx, s.Client.Resource(configMaps).Namespace(s.Namespace), name)
	if err != nil {
		return nil, contract.NewProblem(contract.ReasonAPICallFailed, "%v", err)
	}
	if object == nil {
		return nil, nil
	}
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		return nil, contract.NewProblem(contract.ReasonManifestInvalid, "ConfigMap %s is not understood", name)
	}
	if data == nil {
		data = map[string]string{}
	}
	return data, nil
}

// fetch brings the blobs that are missing, and says how many bytes came for this revision since it
// was first asked for.
func (s *Stager) fetch(ctx context.Context, revision string, blobs []contract.Blob) (bytes int64, err error) {
	missing, err := s.store.Missing(blobs)
	if err != nil || len(missing) == 0 {
		return s.count(revision, 0), err
	}
	source, err := s.source(ctx)
	if err != nil {
		return s.count(revision, 0), err
	}
	// Each blob is copied to its place when its revision is.
	reserve := int64(headroom)
	for _, b := range missing {
		reserve += b.Size
	}
	fetcher, err := NewFetcher(FetcherOptions{Source: source, Store: s.store, Free: s.free, Reserve: reserve,
		Clock: s.Clock})
	if err != nil {
		return 0, err
	}
	n, err := fetcher.Fetch(ctx, missing)
	return s.count(revision, n), err
}

func (s *Stager) count(revision string, n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counted != revision {
		s.counted, s.received = revision, 0
	}
	s.received += n
	return s.received
}

func (s *Stager) free(ctx context.Context) (int64, error) {
	facts, err := s.Host.System.Facts(ctx)
	return facts.DiskFree, err
}

// source makes a source of what the operator says now.
func (s *Stager) source(ctx context.Context) (Source, error) {
	data, err := s.read(ctx, contract.PayloadSourceConfigMap)
	if err != nil {
		return nil, err
	}
	urls := strings.Fields(data[contract.PayloadSourceURLs])
	if len(urls) == 0 {
		return nil, contract.NewProblem(contract.ReasonPayloadIncomplete, "ConfigMap %s names no payload source",
			contract.PayloadSourceConfigMap)
	}
	ca := []byte(data[contract.PayloadSourceCA])
	if !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return nil, contract.NewProblem(contract.ReasonPayloadIncomplete, "ConfigMap %s has no certificate",
			contract.PayloadSourceConfigMap)
	}
	source, err := s.Source(urls, ca)
	if err != nil {
		return nil, fmt.Errorf("preparing the payload source: %w", err)
	}
	return source, nil
}

// problem gives an error its reason; nil for none.
func problem(err error) *contract.Problem {
	if err == nil {
		return nil
	}
	if p, ok := contract.AsProblem(err); ok {
		return p
	}
	if errors.Is(err, winos.ErrNoSpace) {
		return contract.NewProblem(contract.ReasonDiskFull, "%v", err)
	}
	return contract.NewProblem(contract.ReasonPayloadIncomplete, "%v", err)
}
