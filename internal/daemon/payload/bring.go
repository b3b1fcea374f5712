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

// headroom is the disk space in bytes that must remain free for pods and images: see Fetcher.Headroom.
const headroom = 1 << 30

const readTimeout = 15 * time.Second

// stage fetches the payload of a revision. It reports on the Node that the payload is complete, or why it could not be
// fetched. If revision is empty, stage removes the status annotation from the Node.
func (s *Stager) stage(ctx context.Context, revision string) error {
	if revision == "" {
		return s.say(ctx, map[string]any{contract.StageStatusAnnotation: nil})
	}
	blobs, err := s.payload(ctx, revision)
	var bytes int64
	if err == nil {
		bytes, err = s.fetch(ctx, revision, blobs)
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
	if bytes > 0 || !s.isStaged(revision) {
		changes[contract.StagedBytesAnnotation] = strconv.FormatInt(bytes, 10)
	}
	return s.say(ctx, changes)
}

// progressPace is the time between progress reports of a long fetch. It must be much shorter than the operator's
// --daemon-timeout. If a daemon reports nothing for longer, the operator treats it as dead.
const progressPace = time.Minute

// progress reports on the Node how many blobs of a revision are missing while the Stager fetches them.
func (s *Stager) progress(ctx context.Context, revision string) {
	s.mu.Lock()
	isKnown, blobs := s.manifest == revision, s.blobs
	s.mu.Unlock()
	if revision == "" || !isKnown {
		return
	}
	missing, err := s.store.Missing(blobs)
	if err == nil {
		err = s.say(ctx, map[string]any{contract.StageStatusAnnotation: apiclient.ProblemText(contract.NewProblem(
			contract.ReasonStaging, "%d of %d programs are still to come", len(missing), len(blobs)))})
	}
	if err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("the progress of staging can't be reported", "detail", err.Error())
	}
}

// isStaged reports whether the Node already shows this revision as staged. If so, an earlier daemon has already
// reported how many bytes it received.
func (s *Stager) isStaged(revision string) bool {
	node, _ := s.Node.Get()
	return node != nil && node.GetAnnotations()[contract.StagedAnnotation] == revision
}

// say writes annotations to the Node, unless the Node already has all of them. A nil value removes an annotation.
func (s *Stager) say(ctx context.Context, changes map[string]any) error {
	node, _ := s.Node.Get()
	if node == nil {
		return nil // the watch wakes the Stager when the Node exists
	}
	have, same := node.GetAnnotations(), true
	for name, value := range changes {
		text, exists := have[name]
		same = same && (value == nil && !exists || exists && value == text)
	}
	if same {
		return nil
	}
	_, err := apiclient.AnnotateNode(ctx, s.Client, s.Node, node, changes)
	return err
}

// payload lists the blobs of a revision. It ignores unknown fields, because the manifest may be of a newer release.
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

// read returns the data of a ConfigMap in the operator's namespace, or nil if the ConfigMap doesn't exist.
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

// fetch fetches a revision's missing blobs. It returns how many bytes all calls have received for the revision.
func (s *Stager) fetch(ctx context.Context, revision string, blobs []contract.Blob) (bytes int64, err error) {
	missing, err := s.store.Missing(blobs)
	if err != nil || len(missing) == 0 {
		return s.count(revision, 0), err
	}
	source, err := s.source(ctx)
	if err != nil {
		return s.count(revision, 0), err
	}
	fetcher := Fetcher{Source: source, Store: s.store, System: s.Host.System, Headroom: headroom, Clock: s.Clock}
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

// source creates a payload source with the URLs and the CA that the operator currently publishes.
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
		return nil, fmt.Errorf("creating the payload source: %w", err)
	}
	return source, nil
}

func problem(err error) *contract.Problem {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, winos.ErrNoSpace):
		return contract.ProblemOf(contract.ReasonDiskFull, err)
	}
	return contract.ProblemOf(contract.ReasonPayloadIncomplete, err)
}
