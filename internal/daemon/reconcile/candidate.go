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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// readTimeout limits one read of a ConfigMap or Secret. The reconcile loop waits during a read.
const readTimeout = 15 * time.Second

// revisions reads and caches the revision that the Node's annotation names.
type revisions struct {
	client    dynamic.Interface
	namespace string
	program   *selfupdate.Program
	state     *state.File
	latest    latest
	// `last` is the candidate that was read last, or nil if the host has the revision that the Node's annotation names.
	last     *state.Revision
	serverCA serverCA
	// `asked` is the revision whose last request failed, or empty. `unread` is the problem of that request.
	asked  string
	unread *contract.Problem
}

// choose returns the candidate: the revision that the Node's annotation names. If the host already has this revision,
// choose returns nil. If the revision is missing or invalid, choose returns nil and a problem, and the host keeps its
// revision. While the watch may still deliver the revision, choose returns nil and sets latest.isAwaited. If `due` is
// true, the time of a planned check has come. Only then does choose repeat a failed request.
func (r *Reconciler) choose(ctx context.Context, node *unstructured.Unstructured, due bool) (*state.Revision,
	*contract.Problem) {
	name := desired(node)
	r.revisions.latest.isAwaited = false
	if name == "" || name == r.State.Revision.Name {
		r.revisions.last = nil
		return nil, nil
	}
	return r.revisions.read(ctx, name, due)
}

// understand parses the host's manifest again if the daemon that stored it could not parse all of it. It returns a
// problem if this daemon can't parse it either.
func (r *Reconciler) understand() *contract.Problem {
	if r.State.Data != nil {
		c, err := r.revisions.parse(contract.Latest{Revision: r.State.Revision.Name, Manifest: r.State.Data,
			Confidential: r.State.Confidential})
		if err != nil {
			return problemOf(err)
		}
		r.State.Revision = *c
	}
	if err := r.revisions.check(r.State.Revision); err != nil {
		return problemOf(err)
	}
	return nil
}

// read returns the revision with this name, or nothing while the watch may still deliver it. If the last request for
// this revision failed and no check is due, read returns the problem of that request.
func (r *revisions) read(ctx context.Context, name string, due bool) (found *state.Revision,
	problem *contract.Problem) {
	if r.last != nil && r.last.Name == name {
		return r.last, nil
	}
	if found = r.known(name); found == nil {
		if r.latest.of(name).Revision == "" && r.latest.awaits(name) {
			return nil, nil
		}
		if r.asked == name && !due {
			return nil, r.unread
		}
		var err error
		if found, err = r.published(ctx, name); err != nil {
			r.asked, r.unread = name, problemOf(err)
			return nil, r.unread
		}
	}
	logr.FromContextOrDiscard(ctx).Info("read a revision", "revision", name, "present", r.state.Revision.Name)
	r.last, r.asked = found, ""
	return found, nil
}

// `known` returns a revision from the state file or from the watch of the latest revision, or nil. It sends no request.
func (r *revisions) known(name string) *state.Revision {
	if before := r.state.Before; before != nil && before.Name == name &&
		contract.IsRevisionOf(name, before.Manifest) && r.check(*before) == nil {
		return new(*before)
	}
	if found, err := r.parse(r.latest.of(name)); err == nil {
		return found
	}
	return nil
}

// `published` reads a revision from its ConfigMap and Secret. The operator publishes both before it annotates a Node.
func (r *revisions) published(ctx context.Context, name string) (*state.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var configMap corev1.ConfigMap
	var secret corev1.Secret
	err := r.get(ctx, configMaps, contract.ServicesConfigMapPrefix+name, &configMap)
	if err == nil && configMap.Data[contract.KeyConfidential] != "" {
		err = r.get(ctx, secrets, contract.ServicesSecretPrefix+name, &secret)
	}
	if err != nil {
		return nil, err
	}
	found, err := r.parse(contract.Latest{Revision: name, Manifest: configMap.Data,
		Confidential: secret.Data[contract.ConfidentialField]})
	if err != nil {
		return nil, fmt.Errorf("ConfigMap or Secret %s: %w", configMap.Name, err)
	}
	return found, nil
}

// get reads an object in the operator's namespace and decodes it into the value that `into` points to.
func (r *revisions) get(ctx context.Context, kind schema.GroupVersionResource, name string, into any) error {
	object, err := apiclient.GetCached(ctx, r.client.Resource(kind).Namespace(r.namespace), name)
	if err != nil {
		return contract.NewProblem(contract.ReasonAPICallFailed, "%v", err)
	}
	if object == nil {
		return contract.NewProblem(contract.ReasonManifestMissing, "%s %s does not exist",
			strings.TrimSuffix(kind.Resource, "s"), name)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// parse parses the content of a revision. If this daemon can't parse the manifest, but the manifest contains another
// daemon, parse returns a revision that has only the manifest's files. The other daemon parses the rest from Data.
func (r *revisions) parse(content contract.Latest) (*state.Revision, error) {
	manifest, err := contract.ManifestFromConfigMap(content.Manifest)
	if !contract.IsRevisionOfData(content.Revision, content.Manifest) {
		if err == nil {
			err = contract.NewProblem(contract.ReasonManifestInvalid, "it does not hold what its name stands for")
		}
		return nil, err
	}
	found := &state.Revision{Name: content.Revision, Manifest: manifest, Confidential: content.Confidential}
	if err != nil || !contract.IsRevisionOf(content.Revision, manifest) {
		found.Data = content.Manifest
	}
	if err != nil {
		files, unreadable := contract.FilesFromConfigMap(found.Data)
		found.Manifest = contract.Manifest{Files: files, Confidential: found.Data[contract.KeyConfidential]}
		if unreadable != nil || !r.program.Replaces(found.Manifest) {
			return nil, err
		}
	}
	return found, r.check(*found)
}

// check returns an error if the confidential part of a revision can't be parsed. Exception: if the revision contains
// another daemon, check returns nil, because the other daemon parses the confidential part.
func (r *revisions) check(c state.Revision) error {
	_, err := contract.ParseConfidential(c.Confidential, c.Manifest)
	if err != nil && len(c.Confidential) > 0 && r.program.Replaces(c.Manifest) {
		return nil
	}
	return err
}

func problemOf(err error) *contract.Problem {
	if p, ok := contract.AsProblem(err); ok {
		return contract.NewProblem(p.Reason, "%s", withoutReason(err, p))
	}
	return contract.NewProblem(contract.ReasonManifestInvalid, "%v", err)
}

// withoutReason returns the text of an error. If the text ends with p, withoutReason omits p's number and reason.
func withoutReason(err error, p *contract.Problem) string {
	text, ends := strings.CutSuffix(err.Error(), p.Error())
	if ends {
		return text + p.Detail
	}
	return text
}
