package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Options are what a Walker works with. All are required but those that say otherwise.
type Options struct {
	// Client reads through the cache and writes; Pods is used for draining only and reads past the
	// cache.
	Client client.Client
	Pods   kubernetes.Interface
	Dialer host.Dialer
	// Payload is what hosts are given.
	Payload Payload
	Desired Desired
	Keys    Keys
	Tokens  Tokens
	// Origins tells what became of Machines; nil where there are none, which takes every Machine
	// for gone.
	Origins Origins
	// FirstContact tells which host key a host shows that has never been reached; nil accepts and
	// pins whatever it shows.
	FirstContact FirstContact
	// Slots bound how many hosts are worked on at once; Claims keep two instances from being one
	// host.
	Slots  *Slots
	Claims *Claims
	// Bounds are the user's; nil means the defaults.
	Bounds func(ctx context.Context) (Bounds, error)
	// Silence is how long a daemon may owe an answer; DefaultSilence if 0. Led tells since when
	// this operator looks after hosts; nil means since ever.
	Silence time.Duration
	Led     func() time.Time
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

// Key is the SSH key that lets us in.
type Key struct {
	PEM []byte
	// Hash is the hex SHA-256 of the public key's authorized_keys line.
	Hash string
}

// Keys gives the private key.
type Keys interface {
	// PrivateKey answers with a *contract.Problem while there is no usable one.
	PrivateKey(ctx context.Context) (Key, error)
}

// FirstContact knows what was put on hosts before anybody reached them.
type FirstContact interface {
	// SharedHostKey is the SSH host key, "<type> <base64>", with which the host of an instance was
	// made to start, or empty when it was made with none that we know. It is shared with other
	// hosts, so it is good for the first contact only: over that connection the host proves which
	// keys are its own (host.Prover), and one of those is pinned. A repeated call reads again. It
	// answers with a *contract.Problem while the key should be known and is not.
	SharedHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance) (string, error)
}

// Tokens makes first credentials for kubelets.
type Tokens interface {
	// BootstrapToken is short-lived and good for requesting the certificate of the node of one
	// instance. A repeated call gives another one, and the earlier ones stay good.
	BootstrapToken(ctx context.Context, instance *v1alpha1.WindowsInstance) (Token, error)
	// Revoke ends all tokens of an instance. A repeated call finds none.
	Revoke(ctx context.Context, instance *v1alpha1.WindowsInstance) error
}

// Token is kubelet's first credential.
type Token struct {
	// Text is the secret.
	Text string
	// ID is what the API server calls it; no secret.
	ID string
}

// Walker walks hosts in and out.
type Walker struct {
	Options
	written *written
	changes *changes
}

// New checks that everything is there.
func New(options Options) (*Walker, error) {
	if options.Client == nil || options.Pods == nil || options.Dialer == nil || options.Payload == nil ||
		options.Desired == nil ||
		options.Keys == nil || options.Tokens == nil || options.Slots == nil || options.Claims == nil ||
		options.Now == nil || options.Namespace == "" {
		return nil, errors.New("making a walker: an option is missing")
	}
	options.Silence = cmp.Or(options.Silence, DefaultSilence)
	return &Walker{Options: options, written: &written{nodes: map[types.UID]write{}}, changes: &changes{}}, nil
}

// Phase is one step of the way in.
type Phase struct {
	Name v1alpha1.Phase
	// Remote phases need the connection of a Visit; without it the way starts again from
	// Connecting.
	Remote bool
	Run    func(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome
}

// Join lists the phases of the way in, in their order.
func (w *Walker) Join() []Phase {
	return []Phase{
		{Name: v1alpha1.PhaseConnecting, Run: w.connect},
		{Name: v1alpha1.PhasePreflight, Remote: true, Run: w.preflight},
		{Name: v1alpha1.PhasePreparing, Remote: true, Run: w.prepare},
		{Name: v1alpha1.PhaseDelivering, Remote: true, Run: w.deliver},
		{Name: v1alpha1.PhaseBootstrapping, Remote: true, Run: w.bootstrap},
		{Name: v1alpha1.PhaseAdopting, Remote: true, Run: w.adopt},
		{Name: v1alpha1.PhaseHandingOver, Remote: true, Run: w.handOver},
		{Name: v1alpha1.PhaseConfirming, Run: w.confirm},
	}
}

// Resume says at which index of the way in an instance goes on. A remote phase whose connection is
// gone starts over: everything before it looks first, so nothing is done twice. So does a host that
// waits for a version that is not the desired one any more: that version may be the very reason for
// which it waits. And so does an attempt that failed at the end: waiting on would bring it no
// further.
func (w *Walker) Resume(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) int {
	phase, passed := instance.Status.Phase, instance.Status.Phases
	if phase == v1alpha1.PhaseConfirming && len(passed) > 0 && passed[len(passed)-1].Milliseconds != nil {
		return 0
	}
	if phase == v1alpha1.PhaseConfirming {
		if desired, _, err := w.revision(ctx, instance); err == nil &&
			desired.Version != instance.Status.DesiredRevision {
			return 0
		}
	}
	for i, p := range w.Join() {
		if p.Name == phase && (!p.Remote || visit.Connected()) {
			return i
		}
	}
	return 0
}
