package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/sealed"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// candidate is a revision that the Node names and that the host is not brought to (yet). It is
// complete and checked.
type candidate struct {
	state.Revision
	// data is the confidential part as it was published, and confidential what it says; both are
	// nil when there is none.
	data         []byte
	confidential *contract.Confidential
}

// readTimeout bounds one read of a ConfigMap or Secret; nothing is reconciled meanwhile.
const readTimeout = 15 * time.Second

// revisions reads the revisions that the Node names.
type revisions struct {
	client    dynamic.Interface
	namespace string
	state     *state.File
	sealed    *sealed.Store
	program   *program
	clock     clock.Clock
	intervals Intervals
	// watch begins to watch an object, and wakes the loop when it changes.
	watch func(ctx context.Context, client dynamic.ResourceInterface, name string) *apiclient.Watch
	// latest is what was published last.
	latest latest
	// last is what was read last and is not the host's revision.
	last *candidate
	// serverCA is how the daemon itself verifies the API server.
	serverCA serverCA
	// manifest is the watch of the ConfigMap of a revision that the Node names, until that was read.
	manifest         *apiclient.Watch
	manifestRevision string
	stop             context.CancelFunc
	// unread is why an object could not be read; it is read again at readAgain, after reading.
	unread    *contract.Problem
	readAgain time.Time
	reading   time.Duration
}

// choose finds what the Node names: nil when that is the host's revision, or when it can't be had,
// in which case the problem says why. A bad or missing one changes nothing on the host.
func (r *Reconciler) choose(ctx context.Context, node *unstructured.Unstructured) (*candidate, *contract.Problem) {
	name := desired(node)
	r.revisions.latest.isAwaited = false
	if name == "" {
		return nil, nil
	}
	if name == r.State.Revision.Name && !r.trial.unsure && (r.State.Partial || r.identity.of(r.State).named) {
		r.revisions.unwatchManifest()
		r.revisions.last = nil
		var problem *contract.Problem
		if r.confidential == nil {
			r.confidential, problem = r.revisions.sealAgain(ctx)
		}
		return nil, problem
	}
	c, problem := r.revisions.read(ctx, name)
	if problem != nil || c == nil || r.trial.unsure && r.understood(ctx, c) {
		return nil, problem
	}
	return c, nil
}

// read gives the revision of a name, or nil as long as it was not read.
func (r *revisions) read(ctx context.Context, name string) (*candidate, *contract.Problem) {
	if r.last != nil && r.last.Revision.Name == name {
		return r.last, nil
	}
	revision, problem := r.revisionOf(ctx, name)
	if problem != nil || revision == nil {
		return nil, problem
	}
	c := &candidate{Revision: *revision}
	if !r.program.replaces(c.Manifest) {
		if c.data, c.confidential, problem = r.confidentialOf(ctx, c.Revision); problem != nil {
			return nil, problem
		}
	}
	logr.FromContextOrDiscard(ctx).Info("read a revision", "revision", name, "present", r.state.Revision.Name)
	r.unwatchManifest()
	r.last = c
	return c, nil
}

// revisionOf gives the manifest of a revision: from the state file, as it was handed out, or as soon as
// the watch has seen it; nil until then.
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
		r.watchManifest(ctx, name) // somebody will put it right
		return nil, problemOf(contract.ReasonManifestInvalid, fmt.Errorf("ConfigMap %s: %w", object.GetName(), err))
	}
	return revision, nil
}

// revisionIn reads a manifest. Of one that this daemon does not understand and that brings another
// daemon, it gives the files: the other one reads the rest.
func (r *revisions) revisionIn(data map[string]string, name string) (*state.Revision, error) {
	manifest, err := contract.ManifestFromConfigMap(data)
	named := contract.IsRevisionOfData(name, data)
	if err != nil && named {
		if files, ferr := contract.FilesFromConfigMap(data); ferr == nil &&
			r.program.replaces(contract.Manifest{Files: files}) {
			return &state.Revision{Name: name, Manifest: contract.Manifest{Files: files}, Partial: true}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if !named {
		return nil, contract.NewProblem(contract.ReasonManifestInvalid, "it does not hold what its name stands for")
	}
	return &state.Revision{Name: name, Manifest: manifest, Partial: !contract.IsRevisionOf(name, manifest)},
		nil
}

// published gives the ConfigMap of a revision. It is read once, because it is published before
// anybody is told of it; one that is not there is watched for. Nothing and no problem means that
// the watch has yet to see.
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

// ask reads an object, less and less often while that fails; the problem of the last attempt stands
// meanwhile. missing is called when it is not there.
func (r *revisions) ask(read func() (*unstructured.Unstructured, *contract.Problem),
	missing func()) (*unstructured.Unstructured, *contract.Problem) {
	if r.unread != nil && r.clock.Now().Before(r.readAgain) {
		return nil, r.unread
	}
	object, problem := read()
	if r.unread = problem; problem != nil {
		r.reading = grow(r.reading, 2, r.intervals.Failing, r.intervals.FailingLimit)
		r.readAgain = r.clock.Now().Add(r.reading)
		return nil, problem
	}
	r.reading = 0
	if object == nil {
		missing()
	}
	return object, nil
}

// confidentialOf gives the confidential part of a manifest: as it is sealed on this host, or from
// the Secret of that revision.
func (r *revisions) confidentialOf(ctx context.Context, of state.Revision) ([]byte, *contract.Confidential,
	*contract.Problem) {
	if of.Manifest.Confidential == "" {
		return nil, nil, nil
	}
	if data, c := r.unseal(ctx, of.Manifest); c != nil {
		return data, c, nil
	}
	if packed := r.latest.of(of.Name).Confidential; packed != nil {
		if data, c, err := unpack(packed, of.Manifest); err == nil {
			return data, c, nil
		}
	}
	var data []byte
	var c *contract.Confidential
	_, problem := r.ask(func() (*unstructured.Unstructured, *contract.Problem) {
		object, problem := r.secret(ctx, of.Name)
		if problem == nil {
			data, c, problem = unpackSecret(object, of.Manifest)
		}
		return object, problem
	}, func() {})
	return data, c, problem
}

// secret reads the Secret of a revision.
func (r *revisions) secret(ctx context.Context, revision string) (*unstructured.Unstructured, *contract.Problem) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	name := contract.ServicesSecretPrefix + revision
	object, err := apiclient.GetCached(ctx, r.client.Resource(secrets).Namespace(r.namespace), name)
	if err != nil {
		return nil, contract.NewProblem(contract.ReasonAPICallFailed, "%v", err)
	}
	if object == nil {
		return nil, contract.NewProblem(contract.ReasonManifestMissing, "there is no Secret %s", name)
	}
	return object, nil
}

// unpackSecret reads the confidential part of a manifest out of its Secret.
func unpackSecret(object *unstructured.Unstructured, m contract.Manifest) ([]byte, *contract.Confidential,
	*contract.Problem) {
	var secret corev1.Secret
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &secret); err != nil {
		return nil, nil, contract.NewProblem(contract.ReasonManifestInvalid, "Secret %s is not understood",
			object.GetName())
	}
	data, c, err := unpack(secret.Data[contract.ConfidentialField], m)
	if err != nil {
		return nil, nil, problemOf(contract.ReasonManifestInvalid, fmt.Errorf("Secret %s: %w", object.GetName(), err))
	}
	return data, c, nil
}

// unpack reads the confidential part of a manifest as it is published.
func unpack(packed []byte, m contract.Manifest) ([]byte, *contract.Confidential, error) {
	data, err := contract.UnpackConfidential(packed)
	if err != nil {
		return nil, nil, err
	}
	c, err := contract.ParseConfidential(data, m)
	if err != nil {
		return nil, nil, err
	}
	return data, &c, nil
}

// unseal gives the sealed confidential part of a manifest; nil when it is not there, or not
// what it should be.
func (r *revisions) unseal(ctx context.Context, m contract.Manifest) ([]byte, *contract.Confidential) {
	if m.Confidential == "" {
		return nil, nil
	}
	log := logr.FromContextOrDiscard(ctx)
	data, err := r.sealed.Get(ctx, m.Confidential)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		if errors.Is(err, winos.ErrNotSealedHere) {
			err = contract.NewProblem(contract.ReasonDecryptionFailed, "%v", err)
		}
		log.Info("a sealed confidential part can't be used", "detail", err.Error())
		return nil, nil
	}
	c, err := contract.ParseConfidential(data, m)
	if err != nil {
		log.Info("a sealed confidential part can't be used", "detail", err.Error())
		return nil, nil
	}
	return data, &c
}

// unseal has the confidential part of the host's revision be known, as soon as it can be unsealed on this host.
// It is tried again before each pass, whatever the Node names: somebody may have had the file open.
func (r *Reconciler) unseal(ctx context.Context) {
	if r.confidential != nil {
		return
	}
	_, r.confidential = r.revisions.unseal(ctx, r.State.Manifest)
	if r.confidential != nil && r.trial.unsure && !r.incomplete() {
		r.trial.unsure = false
		r.announce()
	}
}

// sealAgain gets the confidential part of the host's revision from the API server when what was sealed is lost, and
// seals it. Nothing and no problem means that there is none, or no API server.
func (r *revisions) sealAgain(ctx context.Context) (*contract.Confidential, *contract.Problem) {
	if r.state.Manifest.Confidential == "" || r.client == nil {
		return nil, nil
	}
	data, c, problem := r.confidentialOf(ctx, r.state.Revision)
	if problem != nil {
		return nil, problem
	}
	if err := r.sealed.Keep(ctx, r.state.Manifest.Confidential, data); err != nil {
		return c, problemOf(contract.ReasonFileFailed, err)
	}
	return c, nil
}

// watchManifest watches the ConfigMap of this revision, and no other any more.
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

// unwatchManifest ends the watch: a manifest that is known never changes, because its name stands for its
// content.
func (r *revisions) unwatchManifest() {
	r.stop()
	r.stop, r.manifestRevision, r.manifest = func() {}, "", nil
}

func problemOf(reason contract.Reason, err error) *contract.Problem {
	if p, ok := contract.AsProblem(err); ok {
		return contract.NewProblem(p.Reason, "%s", withoutReason(err, p))
	}
	return contract.NewProblem(reason, "%v", err)
}

// withoutReason is an error's text without the number and reason that a Problem in it says.
func withoutReason(err error, p *contract.Problem) string {
	text := err.Error()
	if tail := p.Error(); len(text) >= len(tail) && text[len(text)-len(tail):] == tail {
		return text[:len(text)-len(tail)] + p.Detail
	}
	return text
}
