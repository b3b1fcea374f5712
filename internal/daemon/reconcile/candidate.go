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

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// candidate is a desired state that the Node asks for and that the host is not brought to (yet). It is
// complete and checked.
type candidate struct {
	state.Revision
	// data is the confidential part as it was published, and confidential what it says; both are
	// nil when there is none.
	data         []byte
	confidential *contract.Confidential
}

// readTimeout bounds one read of a Secret; nothing is tended meanwhile.
const readTimeout = 15 * time.Second

// choose finds what the Node asks for: nil when that is the present desired state, or when it can't
// be had, in which case the problem says why. A bad or missing one changes nothing on the host.
func (t *Reconciler) choose(ctx context.Context, node *unstructured.Unstructured) (*candidate, *contract.Problem) {
	if node == nil {
		return nil, nil
	}
	desired := node.GetAnnotations()[contract.DesiredRevisionAnnotation]
	if desired == "" {
		return nil, nil
	}
	if desired == t.Book.Version && !t.unsure && (t.Book.Partial || t.present().named) {
		t.unfollow()
		t.wished = nil
		return nil, t.recover(ctx)
	}
	if t.wished != nil && t.wished.Version == desired {
		return t.wished, nil
	}
	revision, problem := t.revisionOf(ctx, desired)
	if problem != nil || revision == nil {
		return nil, problem
	}
	w := &candidate{Revision: *revision}
	if !t.exchanges(w.Manifest) {
		if w.data, w.confidential, problem = t.confidentialOf(ctx, w.Revision); problem != nil {
			return nil, problem
		}
	}
	if t.unsure && t.assured(ctx, w) {
		return nil, nil
	}
	logr.FromContextOrDiscard(ctx).Info("a desired state is known", "version", desired, "before", t.Book.Version)
	t.unfollow()
	t.wished = w
	return w, nil
}

// revisionOf gives the manifest of a version: from the ledger, or as soon as the watch has seen it;
// nil until then.
func (t *Reconciler) revisionOf(ctx context.Context, version string) (*state.Revision, *contract.Problem) {
	if before := t.Book.Before; before != nil && before.Version == version &&
		contract.IsRevisionOf(version, before.Manifest) {
		return before, nil
	}
	object, problem := t.published(ctx, version)
	if problem != nil || object == nil {
		return nil, problem
	}
	revision, err := t.revisionIn(object, version)
	if err != nil {
		t.follow(ctx, version) // somebody will put it right
		return nil, problemOf(contract.ReasonManifestInvalid, fmt.Errorf("ConfigMap %s: %w", object.GetName(), err))
	}
	return revision, nil
}

// revisionIn reads a manifest. Of one that this daemon does not understand and that brings another
// daemon, it gives the files: the other one reads the rest.
func (t *Reconciler) revisionIn(object *unstructured.Unstructured, version string) (*state.Revision, error) {
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("reading its data: %w", err)
	}
	manifest, err := contract.ManifestFromConfigMap(data)
	named := contract.IsRevisionOfData(version, data)
	if err != nil && named {
		if files, ferr := contract.FilesFromConfigMap(data); ferr == nil &&
			t.exchanges(contract.Manifest{Files: files}) {
			return &state.Revision{Version: version, Manifest: contract.Manifest{Files: files}, Partial: true}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if !named {
		return nil, contract.NewProblem(contract.ReasonManifestInvalid, "it does not hold what its name stands for")
	}
	return &state.Revision{Version: version, Manifest: manifest, Partial: !contract.IsRevisionOf(version, manifest)},
		nil
}

// published gives the ConfigMap of a version. It is read once, because it is published before
// anybody is told of it; one that is not there is watched for. Nothing and no problem means that
// the watch has yet to see.
func (t *Reconciler) published(ctx context.Context, version string) (*unstructured.Unstructured, *contract.Problem) {
	if t.manifestVersion == version {
		object, known := t.manifest.Get()
		if object == nil && known {
			return nil, contract.NewProblem(contract.ReasonManifestMissing, "there is no ConfigMap %s%s",
				contract.ServicesConfigMapPrefix, version)
		}
		return object, nil
	}
	return t.ask(func() (*unstructured.Unstructured, *contract.Problem) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		object, err := apiclient.GetCached(ctx, t.Client.Resource(configMaps).Namespace(t.Namespace),
			contract.ServicesConfigMapPrefix+version)
		if err != nil {
			return nil, contract.NewProblem(contract.ReasonAPICallFailed, "%v", err)
		}
		return object, nil
	}, func() { t.follow(ctx, version) })
}

// ask reads an object, less and less often while that fails; the problem of the last attempt stands
// meanwhile. missing is called when it is not there.
func (t *Reconciler) ask(read func() (*unstructured.Unstructured, *contract.Problem),
	missing func()) (*unstructured.Unstructured, *contract.Problem) {
	if t.unread != nil && t.Clock.Now().Before(t.readAgain) {
		return nil, t.unread
	}
	object, problem := read()
	if t.unread = problem; problem != nil {
		t.reading = grow(t.reading, 2, t.Pace.Failing, t.Pace.FailingLimit)
		t.readAgain = t.Clock.Now().Add(t.reading)
		return nil, problem
	}
	t.reading = 0
	if object == nil {
		missing()
	}
	return object, nil
}

// confidentialOf gives the confidential part of a manifest: from the vault, or from the Secret of
// that version.
func (t *Reconciler) confidentialOf(ctx context.Context, of state.Revision) ([]byte, *contract.Confidential,
	*contract.Problem) {
	if of.Manifest.Confidential == "" {
		return nil, nil, nil
	}
	if data, c := t.sealed(ctx, of.Manifest); c != nil {
		return data, c, nil
	}
	var data []byte
	var c *contract.Confidential
	_, problem := t.ask(func() (*unstructured.Unstructured, *contract.Problem) {
		object, problem := t.secret(ctx, of.Version)
		if problem == nil {
			data, c, problem = unpack(object, of.Manifest)
		}
		return object, problem
	}, func() {})
	return data, c, problem
}

// secret reads the Secret of a version.
func (t *Reconciler) secret(ctx context.Context, version string) (*unstructured.Unstructured, *contract.Problem) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	name := contract.ServicesSecretPrefix + version
	object, err := apiclient.GetCached(ctx, t.Client.Resource(secrets).Namespace(t.Namespace), name)
	if err != nil {
		return nil, contract.NewProblem(contract.ReasonAPICallFailed, "%v", err)
	}
	if object == nil {
		return nil, contract.NewProblem(contract.ReasonManifestMissing, "there is no Secret %s", name)
	}
	return object, nil
}

// unpack reads the confidential part of a manifest out of its Secret.
func unpack(object *unstructured.Unstructured, m contract.Manifest) ([]byte, *contract.Confidential,
	*contract.Problem) {
	var secret corev1.Secret
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &secret); err != nil {
		return nil, nil, contract.NewProblem(contract.ReasonManifestInvalid, "Secret %s is not understood",
			object.GetName())
	}
	data, err := contract.UnpackConfidential(secret.Data[contract.ConfidentialField])
	if err != nil {
		return nil, nil, problemOf(contract.ReasonManifestInvalid, fmt.Errorf("Secret %s: %w", object.GetName(), err))
	}
	c, err := contract.ParseConfidential(data, m)
	if err != nil {
		return nil, nil, problemOf(contract.ReasonManifestInvalid, fmt.Errorf("Secret %s: %w", object.GetName(), err))
	}
	return data, &c, nil
}

// sealed gives the confidential part of a manifest from the vault; nil when it is not there, or not
// what it should be.
func (t *Reconciler) sealed(ctx context.Context, m contract.Manifest) ([]byte, *contract.Confidential) {
	if m.Confidential == "" {
		return nil, nil
	}
	log := logr.FromContextOrDiscard(ctx)
	data, err := t.vault.Get(ctx, m.Confidential)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		if errors.Is(err, winos.ErrNotSealedHere) {
			err = contract.NewProblem(contract.ReasonSealBroken, "%v", err)
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

// recover gets the confidential part of the present desired state back when the vault lost it.
func (t *Reconciler) recover(ctx context.Context) *contract.Problem {
	if t.confidential != nil || t.Book.Manifest.Confidential == "" || t.Client == nil {
		return nil
	}
	data, c, problem := t.confidentialOf(ctx, state.Revision{Version: t.Book.Version, Manifest: t.Book.Manifest})
	if problem != nil {
		return problem
	}
	t.confidential = c
	if err := t.vault.Keep(ctx, t.Book.Manifest.Confidential, data); err != nil {
		return problemOf(contract.ReasonFileFailed, err)
	}
	return nil
}

// follow watches the ConfigMap of this version, and no other any more.
func (t *Reconciler) follow(ctx context.Context, version string) {
	if version == t.manifestVersion {
		return
	}
	t.unfollow()
	ctx, t.stopManifest = context.WithCancel(ctx)
	t.manifestVersion = version
	t.manifest = t.watch(ctx, t.Client.Resource(configMaps).Namespace(t.Namespace),
		contract.ServicesConfigMapPrefix+version)
}

// unfollow ends the watch: a manifest that is known never changes, because its name stands for its
// content.
func (t *Reconciler) unfollow() {
	t.stopManifest()
	t.stopManifest, t.manifestVersion, t.manifest = func() {}, "", nil
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
