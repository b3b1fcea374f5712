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
	"github.com/windows-nodes/wmco/internal/host/callhost"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/observed"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Options are the dependencies of the journeys. All are required, unless the comment says what applies without them.
type Options struct {
	// Client reads from the cache, and writes. Live and Pods read from the API server. Only drains use Pods.
	Client client.Client
	Live   client.Reader
	Pods   kubernetes.Interface
	Dialer host.Dialer
	// Calls reaches hosts that join by themselves, and Invitations publishes their commands.
	Calls       callhost.Calls
	Invitations credential.Issuer
	Payload     Payload
	Desired     Desired
	Keys        credential.Keys
	Tokens      credential.Tokens
	// Origins looks up Machines. If it is nil, every Machine counts as deleted.
	Origins Origins
	// FirstContact returns a host's key at the first contact. If it is nil, the operator accepts and pins any key.
	FirstContact FirstContact
	// IsTokenUsed reports whether the bootstrap token with this ID is used up. If it is nil, no token counts as used
	// up.
	IsTokenUsed func(credential string) bool
	// Misplaced returns a problem if pods on a node can't run there, or if the pods could not be read. `looked` is
	// false if the node was not checked yet. If Misplaced is nil, there are no such pods.
	Misplaced func(node string) (problem *contract.Problem, looked bool)
	// Slots limit the number of concurrent joins. Claims ensures that no two instances have the same host.
	Slots  *Slots
	Claims *Claims
	// Bounds returns the user's limits. If it is nil, the defaults apply.
	Bounds func(ctx context.Context) (Bounds, error)
	// DaemonTimeout is how long a daemon may take to respond to a request. 0 means DefaultDaemonTimeout.
	DaemonTimeout time.Duration
	// Observed records when this operator first saw the states of objects.
	Observed *observed.Log
	Now      func() time.Time
	// Namespace is the operator's namespace.
	Namespace string
}

// Payload provides the programs that the operator delivers. *payload.Dir implements this interface.
type Payload interface {
	Manifest() payload.Manifest
	// Select returns the wanted content. If a digest is not in the payload, the error is a *contract.Problem.
	Select(wanted []contract.Blob) ([]payload.Blob, error)
}

// Desired provides the published desired state.
type Desired interface {
	// Current returns the desired state and its facts. While nothing is published, the error is a *contract.Problem.
	Current(ctx context.Context) (blueprint.Desired, blueprint.Facts, error)
}

// Origins looks up the Machines of instances.
type Origins interface {
	Origin(ctx context.Context, instance *v1alpha1.WindowsInstance) (Origin, error)
}

// Origin is the state of the Machine of an instance.
type Origin struct {
	// Exists is false if the Machine, and with it the host, is deleted.
	Exists bool
	// Drains means that the operator must not drain the Node: the machine controller drains it, or a user forbids it.
	Drains bool
}

// FirstContact provides the host key that hosts got from their user data.
type FirstContact interface {
	// SharedHostKey returns the SSH host key, "<type> <base64>", in the operator's user data, or "". If isExpected is
	// true, the host was certainly created with this key, and must show it at the first contact. Otherwise, the host
	// may show any key. Several hosts have the shared key, so the operator doesn't pin it: the host proves its own keys
	// over the connection. A repeated call reads again. If it is unknown whether the host has the key, the error may be
	// a *contract.Problem.
	SharedHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance) (key string, isExpected bool, err error)
}

// Parts contains the common parts of all journeys.
type Parts struct {
	Options
	Nodes     *Nodes
	Access    *Access
	Daemons   *Daemons
	Revisions *Revisions
}

// New returns the parts. If a required option is missing, it fails.
func New(options Options) (*Parts, error) {
	if options.Client == nil || options.Live == nil || options.Pods == nil || options.Dialer == nil ||
		options.Payload == nil || options.Desired == nil || options.Keys == nil || options.Tokens == nil ||
		options.Slots == nil || options.Claims == nil || options.Observed == nil || options.Now == nil ||
		options.Namespace == "" {
		return nil, errors.New("creating the parts of journeys: an option is missing")
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

// RevokeCredentials revokes kubelet's bootstrap tokens.
func (p *Parts) RevokeCredentials(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	if err := p.Tokens.Revoke(ctx, instance); err != nil {
		return fmt.Errorf("revoking kubelet's first credential: %w", err)
	}
	instance.Status.BootstrapCredentials = nil
	return nil
}

// PhaseSince returns when this phase began, or zero if another phase is in progress.
func (o *Options) PhaseSince(instance *v1alpha1.WindowsInstance, phase v1alpha1.Phase) policy.Since {
	for _, p := range instance.Status.Phases {
		if p.Phase == phase && p.Milliseconds == nil {
			return o.Observed.Since(instance, string(phase), p.StartTime.Time)
		}
	}
	return policy.Since{}
}
