package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// readTimeout bounds one read of a ConfigMap or Secret. The loop reconciles nothing during a read.
const readTimeout = 15 * time.Second

// revisions reads the revisions that the Node names.
type revisions struct {
	client    dynamic.Interface
	namespace string
	state     *state.File
	program   *selfupdate.Program
	clock     clock.Clock
	intervals Intervals
	// watch starts a watch of an object, which wakes the loop when the object changes.
	watch func(ctx context.Context, client dynamic.ResourceInterface, name string) *apiclient.Watch
	// latest is the revision that was published last.
	latest latest
	// last is the revision that was read last, if it is not the host's revision.
	last *state.Revision
	// serverCA is how the daemon itself verifies the API server.
	serverCA serverCA
	// manifest watches the ConfigMap of a revision that the Node names, until the ConfigMap has been read.
	manifest         *apiclient.Watch
	manifestRevision string
	stop             context.CancelFunc
	// unread is why an object could not be read; it is read again at readAgain, after reading.
	unread    *contract.Problem
	readAgain time.Time
	reading   time.Duration
}

// choose returns the candidate: the revision that the Node names, complete and checked. If this is the host's
// revision, choose returns nil. If the revision is not available, it also returns nil, and the problem says why. A
// bad or missing revision changes nothing on the host.
func (r *Reconciler) choose(ctx context.Context, node *unstructured.Unstructured) (*state.Revision,
	*contract.Problem) {
	name := desired(node)
	r.revisions.latest.isAwaited = false
	if name == "" || name == r.State.Revision.Name {
		r.revisions.unwatchManifest()
		r.revisions.last = nil
		return nil, nil
	}
	return r.revisions.read(ctx, name)
}

// understand reads the host's manifest again if the daemon that stored it did not understand all of it. It returns why
// this daemon doesn't either.
func (r *Reconciler) understand() *contract.Problem {
	if r.State.Data != nil {
		c, err := r.revisions.revisionIn(r.State.Data, r.State.Revision.Name)
		if err != nil {
			return problemOf(err)
		}
		c.Confidential = r.State.Confidential
		r.State.Revision = *c
	}
	if r.Program.Replaces(r.State.Manifest) {
		return nil // the other daemon understands it
	}
	if _, err := contract.ParseConfidential(r.State.Confidential, r.State.Manifest); err != nil {
		return problemOf(err)
	}
	return nil
}

// read returns the revision of a name, or nil until it has been read.
func (r *revisions) read(ctx context.Context, name string) (*state.Revision, *contract.Problem) {
	if r.last != nil && r.last.Name == name {
		return r.last, nil
	}
	found, problem := r.revisionOf(ctx, name)
	if problem != nil || found == nil {
		return nil, problem
	}
	c := *found
	if problem = r.complete(ctx, &c); problem != nil {
		return nil, problem
	}
	logr.FromContextOrDiscard(ctx).Info("read a revision", "revision", name, "present", r.state.Revision.Name)
	r.unwatchManifest()
	r.last = &c
	return &c, nil
}

// revisionOf returns the manifest of a revision, or nil until it is known. The manifest comes from the state file, from
// the revision that was published last, or from the ConfigMap of the revision.
func (r *revisions) revisionOf(ctx context.Context, name string) (*state.Revision, *contract.Problem) {
	if before := r.state.Before; before != nil && before.Name == name &&
		contract.IsRevisionOf(name, before.Manifest) {
		return before, nil
	}
	handed := r.latest.of(name)
	if handed.Manifest != nil {
		if revision, err := r.revisionIn(handed.Manifest, name); err == nil {
			return revision, nil
		}
	} else if handed.Revision == "" && r.latest.awaits(name) {
		return nil, nil
	}
	object, problem := r.published(ctx, name)
	if problem != nil || object == nil {
		return nil, problem
	}
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	var revision *state.Revision
	if err == nil {
		revision, err = r.revisionIn(data, name)
	}
	if err != nil {
		r.watchManifest(ctx, name) // a corrected ConfigMap wakes the loop
		return nil, problemOf(fmt.Errorf("ConfigMap %s: %w", object.GetName(), err))
	}
	return revision, nil
}

// revisionIn reads a manifest. If this daemon does not understand the manifest, and the manifest brings another daemon,
// revisionIn returns only its files: the other daemon reads the rest from Data.
func (r *revisions) revisionIn(data map[string]string, name string) (*state.Revision, error) {
	manifest, err := contract.ManifestFromConfigMap(data)
	if !contract.IsRevisionOfData(name, data) {
		if err == nil {
			err = contract.NewProblem(contract.ReasonManifestInvalid, "it does not hold what its name stands for")
		}
		return nil, err
	}
	if err == nil && contract.IsRevisionOf(name, manifest) {
		return &state.Revision{Name: name, Manifest: manifest}, nil
	}
	if err != nil {
		files, unreadable := contract.FilesFromConfigMap(data)
		manifest = contract.Manifest{Files: files, Confidential: data[contract.KeyConfidential]}
		if unreadable != nil || !r.program.Replaces(manifest) {
			return nil, err
		}
	}
	return &state.Revision{Name: name, Manifest: manifest, Data: data}, nil
}

// published returns the ConfigMap of a revision. It reads the ConfigMap once, because the operator publishes it before
// a Node names it. If the ConfigMap is missing, it is watched. If published returns neither a ConfigMap nor a problem,
// the watch has no answer yet.
func (r *revisions) published(ctx context.Context, name string) (*unstructured.Unstructured, *contract.Problem) {
	if r.manifestRevision == name {
		object, known := r.manifest.Get()
		if object == nil && known {
			return nil, contract.NewProblem(contract.ReasonManifestMissing, "there is no ConfigMap %s%s",
				contract.ServicesConfigMapPrefix, name)
		}
		return object, nil
	}
	return r.ask(func() (*unstructured.Unstructured, *contract.Problem) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		object, err := apiclient.GetCached(ctx, r.client.Resource(configMaps).Namespace(r.namespace),
			contract.ServicesConfigMapPrefix+name)
		if err != nil {
			return nil, contract.NewProblem(contract.ReasonAPICallFailed, "%v", err)
		}
		return object, nil
	}, func() { r.watchManifest(ctx, name) })
}

// ask reads an object, less and less often while that fails. Between attempts it returns the problem of the last one.
// If the object does not exist, ask calls missing.
func (r *revisions) ask(read func() (*unstructured.Unstructured, *contract.Problem),
	missing func()) (*unstructured.Unstructured, *contract.Problem) {
	if r.unread != nil && r.clock.Now().Before(r.readAgain) {
		return nil, r.unread
	}
	object, problem := read()
	if r.unread = problem; problem != nil {
		r.reading = loop.Grow(r.reading, 2, r.intervals.Failing, r.intervals.FailingLimit)
		r.readAgain = r.clock.Now().Add(r.reading)
		return nil, problem
	}
	r.reading = 0
	if object == nil {
		missing()
	}
	return object, nil
}

// complete adds the confidential part to a revision. The part comes from the state file, from the revision that was
// published last, or from the Secret of the revision. If the revision brings another daemon, that daemon parses the
// part.
func (r *revisions) complete(ctx context.Context, c *state.Revision) *contract.Problem {
	known := [][]byte{c.Confidential, r.latest.of(c.Name).Confidential}
	for _, other := range []*state.Revision{&r.state.Revision, r.state.Before} {
		if other != nil && other.Manifest.Confidential == c.Manifest.Confidential {
			known = append(known, other.Confidential)
		}
	}
	for _, c.Confidential = range known {
		_, err := contract.ParseConfidential(c.Confidential, c.Manifest)
		if err == nil || len(c.Confidential) > 0 && r.program.Replaces(c.Manifest) {
			return nil
		}
	}
	read := func() (*unstructured.Unstructured, *contract.Problem) { return nil, r.readSecret(ctx, c) }
	_, problem := r.ask(read, func() {})
	return problem
}

// readSecret reads the confidential part of a revision from its Secret.
func (r *revisions) readSecret(ctx context.Context, c *state.Revision) *contract.Problem {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	name := contract.ServicesSecretPrefix + c.Name
	object, err := apiclient.GetCached(ctx, r.client.Resource(secrets).Namespace(r.namespace), name)
	switch {
	case err != nil:
		return contract.NewProblem(contract.ReasonAPICallFailed, "%v", err)
	case object == nil:
		return contract.NewProblem(contract.ReasonManifestMissing, "there is no Secret %s", name)
	}
	var secret corev1.Secret
	if err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &secret); err != nil {
		return contract.NewProblem(contract.ReasonManifestInvalid, "Secret %s is not understood", name)
	}
	c.Confidential = secret.Data[contract.ConfidentialField]
	if _, err = contract.ParseConfidential(c.Confidential, c.Manifest); err != nil && !r.program.Replaces(c.Manifest) {
		return problemOf(fmt.Errorf("Secret %s: %w", name, err))
	}
	return nil
}

// watchManifest watches the ConfigMap of this revision, and ends the watch of another.
func (r *revisions) watchManifest(ctx context.Context, revision string) {
	if revision == r.manifestRevision {
		return
	}
	r.unwatchManifest()
	ctx, r.stop = context.WithCancel(ctx)
	r.manifestRevision = revision
	r.manifest = r.watch(ctx, r.client.Resource(configMaps).Namespace(r.namespace),
		contract.ServicesConfigMapPrefix+revision)
}

// unwatchManifest ends the watch. A known manifest never changes, because its name is derived from its content.
func (r *revisions) unwatchManifest() {
	r.stop()
	r.stop, r.manifestRevision, r.manifest = func() {}, "", nil
}

func problemOf(err error) *contract.Problem {
	if p, ok := contract.AsProblem(err); ok {
		return contract.NewProblem(p.Reason, "%s", withoutReason(err, p))
	}
	return contract.NewProblem(contract.ReasonManifestInvalid, "%v", err)
}

// withoutReason returns the text of an error without the number and reason of the Problem in it.
func withoutReason(err error, p *contract.Problem) string {
	text, ends := strings.CutSuffix(err.Error(), p.Error())
	if ends {
		return text + p.Detail
	}
	return text
}
