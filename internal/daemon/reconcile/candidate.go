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
	program   *selfupdate.Program
	state     *state.File
	clock     clock.Clock
	intervals Intervals
	// latest is the revision that was published last.
	latest latest
	// last is the revision that was read last, if it is not the host's revision.
	last *state.Revision
	// serverCA is how the daemon itself verifies the API server.
	serverCA serverCA
	// asked is the name of the revision that was requested last. unread is the reason why it couldn't be read. The
	// field readAgain is the time of the next attempt, and reading is the pause before it.
	asked     string
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
		r.revisions.last = nil
		return nil, nil
	}
	return r.revisions.read(ctx, name)
}

// understand reads the host's manifest again if the daemon that stored it did not understand all of it. If this daemon
// doesn't understand it either, understand returns the reason.
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

// read returns the revision of a name, or nil while the watch may still deliver it. If a revision can't be read, read
// tries again, less and less often. Until then it returns the problem of the last attempt.
func (r *revisions) read(ctx context.Context, name string) (found *state.Revision, problem *contract.Problem) {
	if r.last != nil && r.last.Name == name {
		return r.last, nil
	}
	if r.asked != name {
		r.asked, r.reading, r.readAgain = name, 0, time.Time{}
	}
	if found = r.known(name); found == nil {
		if r.latest.of(name).Revision == "" && r.latest.awaits(name) {
			return nil, nil
		}
		if r.clock.Now().Before(r.readAgain) {
			return nil, r.unread
		}
		var err error
		if found, err = r.published(ctx, name); err != nil {
			r.reading = loop.Grow(r.reading, 2, r.intervals.Failing, r.intervals.FailingLimit)
			r.unread, r.readAgain = problemOf(err), r.clock.Now().Add(r.reading)
			return nil, r.unread
		}
	}
	logr.FromContextOrDiscard(ctx).Info("read a revision", "revision", name, "present", r.state.Revision.Name)
	r.last = found
	return found, nil
}

// known returns a revision from the state file, or from the watch of the revision that was published last. It returns
// nil if neither has it.
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

// published reads a revision from its ConfigMap and its Secret, which the operator publishes before a Node names it.
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

// get reads an object of the operator's namespace.
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

// parse reads the content of a revision. If this daemon does not understand the manifest, and the manifest contains
// another daemon, parse returns only its files: the other daemon reads the rest from Data.
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

// check returns why a revision's confidential part can't be parsed. If the revision contains another daemon, that
// daemon parses it.
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

// withoutReason returns the text of an error without the number and reason of the Problem in it.
func withoutReason(err error, p *contract.Problem) string {
	text, ends := strings.CutSuffix(err.Error(), p.Error())
	if ends {
		return text + p.Detail
	}
	return text
}
