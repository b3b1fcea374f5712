package journey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/observed"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Options are what journeys work with. All are required but those that say otherwise.
type Options struct {
	// Client reads through the cache and writes; Pods is used for draining only and reads past the
	// cache.
	Client client.Client
	// Live reads past the cache.
	Live   client.Reader
	Pods   kubernetes.Interface
	Dialer host.Dialer
	// Payload is what hosts are given.
	Payload Payload
	Desired Desired
	Keys    credential.Keys
	Tokens  credential.Tokens
	// Origins tells what became of Machines; nil where there are none, which takes every Machine
	// for gone.
	Origins Origins
	// FirstContact tells which host key a host shows that has never been reached; nil accepts and
	// pins whatever it shows.
	FirstContact FirstContact
	// Spent reports whether a bootstrap token is good for no further certificate, by its id; nil means never.
	Spent func(credential string) bool
	// Misplaced tells which pods on a node can't run there, or that they could not be read, and nil for
	// none; false for a node that was not looked at yet. No field means none.
	Misplaced func(node string) (problem *contract.Problem, looked bool)
	// Slots bound how many hosts are worked on at once; Claims keep two instances from being one
	// host.
	Slots  *Slots
	Claims *Claims
	// Bounds are the user's; nil means the defaults.
	Bounds func(ctx context.Context) (Bounds, error)
	// DaemonTimeout is how long a daemon may take to respond to a request; DefaultDaemonTimeout if 0.
	DaemonTimeout time.Duration
	// Observed tells since when this operator has seen what objects date.
	Observed *observed.Log
	// Now is the clock.
	Now func() time.Time
	// Namespace of the operator, where the services manifests are.
	Namespace string
}

// Payload is the binaries that we ship; *payload.Dir is one.
type Payload interface {
	Manifest() payload.Manifest
	// Select answers with a *contract.Problem when a digest is not in the payload.
	Select(wanted []contract.Blob) ([]payload.Blob, error)
}

// Desired tells the published desired state.
type Desired interface {
	// Current answers with a *contract.Problem while there is none.
	Current(ctx context.Context) (blueprint.Desired, blueprint.Facts, error)
}

// Origins tells what became of the Machines that instances were made from.
type Origins interface {
	// Origin answers about an instance whose source is a Machine. A repeated call asks again.
	Origin(ctx context.Context, instance *v1alpha1.WindowsInstance) (Origin, error)
}

// Origin is how the Machine of an instance is.
type Origin struct {
	// Exists is false once the Machine, and with it its host, is gone.
	Exists bool
	// Drains says that whoever removes the Machine drains its Node before.
	Drains bool
}

// FirstContact knows what was put on hosts before anybody reached them.
type FirstContact interface {
	// SharedHostKey is the SSH host key, "<type> <base64>", with which the host of an instance was
	// made to start, or empty when it was made with none that we know. It is shared with other
	// hosts, so it is good for the first contact only: over that connection the host proves which
	// keys are its own (host.Prover), and one of those is pinned. A repeated call reads again. It
	// answers with a *contract.Problem while the key should be known and is not.
	SharedHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance) (string, error)
	// PresentHostKey is the one that hosts are made with now, whoever was, or empty. It is not expected of a host
	// for which SharedHostKey is empty, but no such host is pinned by it.
	PresentHostKey(ctx context.Context) (string, error)
}

// Parts are what all journeys share, made of the options.
type Parts struct {
	Options
	// Nodes reads and writes Nodes, Access reaches hosts over SSH, Daemons watches for unresponsive
	// daemons, Revisions reads and compares what is published.
	Nodes     *Nodes
	Access    *Access
	Daemons   *Daemons
	Revisions *Revisions
}

// New checks that everything is there.
func New(options Options) (*Parts, error) {
	if options.Client == nil || options.Live == nil || options.Pods == nil || options.Dialer == nil ||
		options.Payload == nil || options.Desired == nil || options.Keys == nil || options.Tokens == nil ||
		options.Slots == nil || options.Claims == nil || options.Observed == nil || options.Now == nil ||
		options.Namespace == "" {
		return nil, errors.New("making the parts of journeys: an option is missing")
	}
	options.DaemonTimeout = cmp.Or(options.DaemonTimeout, DefaultDaemonTimeout)
	if options.Misplaced == nil {
		options.Misplaced = func(string) (*contract.Problem, bool) { return nil, true }
	}
	parts := &Parts{Options: options}
	parts.Nodes, parts.Access, parts.Daemons = &Nodes{&parts.Options}, &Access{&parts.Options}, &Daemons{&parts.Options}
	parts.Revisions = &Revisions{options: &parts.Options, compared: lru.New(mostCompared)}
	return parts, nil
}

// RevokeCredentials ends kubelet's first credentials: it has its own, or the host leaves.
func (p *Parts) RevokeCredentials(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	if err := p.Tokens.Revoke(ctx, instance); err != nil {
		return fmt.Errorf("ending kubelet's first credential: %w", err)
	}
	instance.Status.BootstrapCredentials = nil
	return nil
}

// PhaseSince is since when a phase lasts that has not ended; zero for any other.
func (o *Options) PhaseSince(instance *v1alpha1.WindowsInstance, phase v1alpha1.Phase) policy.Since {
	for _, p := range instance.Status.Phases {
		if p.Phase == phase && p.Milliseconds == nil {
			return o.Observed.Since(instance, string(phase), p.StartTime.Time)
		}
	}
	return policy.Since{}
}
