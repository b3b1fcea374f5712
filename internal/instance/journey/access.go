package journey

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/instance/credential"
)

const (
	// keyRetry is how often a missing private key is looked up. Normally, an event about the Secret comes earlier.
	keyRetry = time.Minute
	// RebootRetry is the time between two tries to connect to a host that reboots.
	RebootRetry = 10 * time.Second
	// RebootLimit is the time limit of a reboot: servers with much memory need 10 minutes.
	RebootLimit = 20 * time.Minute
	// RescueAfter is how long a node may be not Ready before its host joins again over SSH. A certificate may have
	// expired while the host was off, or a service may be gone. A boot with updates of Windows takes less time.
	RescueAfter = 10 * time.Minute
)

// Access opens connections to hosts: over SSH, or through package callhost.
type Access struct{ options *Options }

func keyAccepted(instance *v1alpha1.WindowsInstance, key credential.Key) {
	instance.Status.PublicKeyHash, instance.Status.KeyRefusal = key.Hash, nil
}

func (a *Access) keyFailed(instance *v1alpha1.WindowsInstance, key credential.Key, err error) {
	problem, ok := contract.AsProblem(err)
	if !ok || problem.Reason != contract.ReasonKeyRefused || instance.Status.PublicKeyHash == key.Hash {
		return
	}
	now, refusal := Seconds(a.options.Now()), instance.Status.KeyRefusal
	if refusal == nil || refusal.PublicKeyHash != key.Hash {
		refusal = &v1alpha1.KeyRefusal{PublicKeyHash: key.Hash, Since: now}
	}
	refusal.Time = now
	instance.Status.KeyRefusal = refusal
}

// HasKey returns a wait if there is no usable private key. A host that joins by itself needs none.
func (a *Access) HasKey(ctx context.Context, instance *v1alpha1.WindowsInstance) Outcome {
	if instance.Spec.ByItself != nil {
		return Done()
	}
	_, err := a.options.Keys.PrivateKey(ctx)
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	if err != nil {
		return Retry(fmt.Errorf("reading the private key: %w", err))
	}
	return Done()
}

// TryKey logs in to a joined host to find out whether it accepts a key, and writes the result into the status. If the
// host does not accept the key, the outcome is a failure.
func (a *Access) TryKey(ctx context.Context, instance *v1alpha1.WindowsInstance, key credential.Key) Outcome {
	conn, err := a.options.Dialer.Dial(ctx, target(instance, key, ""))
	if ctx.Err() != nil {
		if err == nil {
			_ = conn.Close() // no caller uses the connection
		}
		return Retry(ctx.Err())
	}
	if err != nil {
		a.keyFailed(instance, key, err)
		return Fail(err)
	}
	_ = conn.Close() // the login was the whole test
	keyAccepted(instance, key)
	return Done()
}

// Dial opens the connection of a session with the current key. If there is no key, or while the host reboots on the
// operator's request, the outcome is a wait. A repeated call opens a new connection.
func (a *Access) Dial(ctx context.Context, instance *v1alpha1.WindowsInstance, session *Session) Outcome {
	if instance.Spec.ByItself != nil {
		return a.await(ctx, instance, session)
	}
	key, err := a.options.Keys.PrivateKey(ctx)
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	if err != nil {
		return Retry(fmt.Errorf("reading the private key: %w", err))
	}
	shared, expected := "", ""
	if first := a.options.FirstContact; first != nil && instance.Spec.HostKey == "" {
		var isExpected bool
		if shared, isExpected, err = first.SharedHostKey(ctx, instance); isExpected {
			expected = shared
		}
	}
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	if err != nil {
		return Retry(fmt.Errorf("reading the host key for first contacts: %w", err))
	}
	session.End()
	conn, err := a.options.Dialer.Dial(ctx, target(instance, key, expected))
	if err != nil {
		a.keyFailed(instance, key, err)
		return a.dialFailed(instance, session, err)
	}
	keyAccepted(instance, key)
	session.Conn, session.Key, session.SharedKey = conn, key, shared
	return Done()
}

// target returns the login data of a host. expected is the host key if none is configured or pinned.
func target(instance *v1alpha1.WindowsInstance, key credential.Key, expected string) host.Target {
	return host.Target{
		Address: instance.Spec.Address, Port: int(instance.Spec.Port), User: instance.Spec.Username,
		PrivateKey: key.PEM, HostKey: cmp.Or(ExpectedHostKey(instance), expected),
	}
}

// dialFailed distinguishes a host that reboots on the operator's request from a host that can't be reached.
func (a *Access) dialFailed(instance *v1alpha1.WindowsInstance, session *Session, err error) Outcome {
	problem, ok := contract.AsProblem(err)
	if !ok || problem.Reason != contract.ReasonUnreachable && problem.Reason != contract.ReasonNotSSH &&
		problem.Reason != contract.ReasonConnectionLost {
		return Fail(err)
	}
	since := session.RebootTime
	switch {
	case since.IsZero():
		return Fail(err)
	case a.options.Now().Sub(since) > RebootLimit:
		return Fail(contract.NewProblem(contract.ReasonRebootTimedOut, "rebooted at %s and not back since: %s",
			since.UTC().Format(time.RFC3339), problem.Detail))
	default:
		a.options.Slots.Release(client.ObjectKeyFromObject(instance)) // the host queues again after its reboot
		return Wait(RebootRetry, contract.ReasonRebooting, "rebooting since %s", since.UTC().Format(time.RFC3339))
	}
}

// ExpectedHostKey returns the key that a host must show: the user's key, or else the pinned key, or else "".
func ExpectedHostKey(instance *v1alpha1.WindowsInstance) string {
	if instance.Spec.HostKey != "" {
		return instance.Spec.HostKey
	}
	return instance.Status.HostKey
}

// Upload copies the daemon's program to the host.
func (a *Access) Upload(ctx context.Context, session *Session) (contract.Blob, error) {
	file, ok := a.options.Payload.Manifest().Named(contract.ServiceDaemon + ".exe")
	if !ok {
		return contract.Blob{}, contract.NewProblem(contract.ReasonPayloadMissing, "the payload has no %s.exe",
			contract.ServiceDaemon)
	}
	selected, err := a.options.Payload.Select([]contract.Blob{file.Blob()})
	if err != nil {
		return contract.Blob{}, err
	}
	if _, err = session.Conn.Upload(ctx, host.Blob(selected[0])); err != nil {
		return contract.Blob{}, fmt.Errorf("uploading the daemon: %w", err)
	}
	return file.Blob(), nil
}

// Call makes the daemon's program carry out a verb, and returns the result.
func Call[T any](ctx context.Context, conn host.Conn, verb contract.Verb, request any) (T, error) {
	answer, err := host.Call[T](ctx, conn, verb, request)
	if err != nil {
		return answer.Result, fmt.Errorf("calling %s: %w", verb, err)
	}
	if answer.Problem != nil {
		return answer.Result, answer.Problem
	}
	return answer.Result, nil
}
