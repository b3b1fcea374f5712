package callhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

const (
	// look is how often a waiting call reads the host's Secret from the cache, without a request to the API server.
	look = 200 * time.Millisecond
	// pickUp is how long a host may take to begin a call. After a broken watch, a host needs 30 s.
	pickUp = time.Minute
	// silence is the longest allowed time between two reports during a call. The host reports every CallBeatSeconds.
	silence      = 5 * contract.CallBeatSeconds * time.Second
	writeTimeout = 15 * time.Second
	// fetchTimeout is how long a host may fetch the payload. It is longer than the daemon's own limit.
	fetchTimeout = 70 * time.Minute
	maxFault     = 512
)

// Calls opens connections to hosts that join by themselves.
type Calls struct {
	// Client reads Secrets of the operator's namespace from a cache, and writes them.
	Client    client.Client
	Namespace string
}

// Dial returns a connection to the host with this ID and key, and the boot ID in its last report. If no host has
// reported yet, the connection is nil. isOpen reports whether the Secret for the host's calls exists. Dial sends
// nothing.
func (c Calls) Dial(ctx context.Context, id, key string) (_ host.Conn, boot string, isOpen bool, err error) {
	secret, err := c.Read(ctx, contract.CallSecretPrefix+id)
	var reported contract.CallHost
	if err != nil || secret == nil || json.Unmarshal(secret.Data[contract.CallHostField], &reported) != nil {
		return nil, "", secret != nil, err
	}
	return &conn{calls: c, id: id, key: key}, reported.BootID, true, nil
}

// Read returns a Secret of a host, or nil if the Secret does not exist.
func (c Calls) Read(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading secret %s: %w", name, err)
	}
	return secret, nil
}

type conn struct {
	calls   Calls
	id, key string
	program contract.Blob
	err     error
}

var _ host.Conn = (*conn)(nil)

// HostKey implements host.Conn. The operator pinned the key before it approved the host's certificate.
func (c *conn) HostKey() string { return c.key }

// Upload implements host.Conn. It sends nothing: the next call makes the host download the program with this digest.
func (c *conn) Upload(_ context.Context, daemon host.Blob) (sent int64, err error) {
	c.program = daemon.Blob
	return 0, nil
}

// ProveHostKeys implements host.Conn. It returns no keys, because the host has only the key that HostKey returns.
func (c *conn) ProveHostKeys(context.Context) ([]string, error) { return nil, nil }

// Address implements host.Conn. The host's address is unknown.
func (c *conn) Address() netip.Addr { return netip.Addr{} }

// Send implements host.Conn. It sends nothing: VerbReceive makes the host fetch the payload.
func (c *conn) Send(context.Context, string, io.Reader) (int64, error) { return 0, nil }

// RemoveUpload implements host.Conn. It does nothing: the host removes the program when the Secret is deleted.
func (c *conn) RemoveUpload(context.Context) error { return nil }

func (c *conn) Err() error { return c.err }

func (c *conn) Close() error {
	c.err = errors.New("the connection is closed")
	return nil
}

// Call implements host.Conn. After the answer, the request stays in the Secret until the next call. If there is no
// answer, Call deletes the request, because it may contain credentials and must not be carried out later. Exception:
// the request for a cleanup stays, because the host continues it without a network.
func (c *conn) Call(ctx context.Context, verb contract.Verb, request []byte) (answer []byte, err error) {
	limit := host.CallTimeout(verb)
	if verb == contract.VerbReceive {
		limit = fetchTimeout
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	call := contract.Call{ID: string(uuid.NewUUID()), Program: c.program, Verb: verb, Request: request}
	encoded, err := json.Marshal(call)
	if err != nil {
		return nil, fmt.Errorf("calling %s: the call can't be encoded", verb)
	}
	if err = c.patch(bounded, encoded); err != nil {
		return nil, c.lost(contract.NewProblem(contract.ReasonAPICallFailed, "calling %s: writing secret %s%s: %v",
			verb, contract.CallSecretPrefix, c.id, err))
	}
	answer, err = c.await(bounded, call)
	if err == nil || verb == contract.VerbCleanup {
		return answer, err
	}
	if failed := c.patch(context.WithoutCancel(ctx), nil); failed != nil {
		logr.FromContextOrDiscard(ctx).Info("a request stays in its secret until the next call", "uid", c.id, "cause",
			failed.Error())
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		err = contract.NewProblem(contract.ReasonDaemonCallFailed, "calling %s: no answer within %s", verb, limit)
	}
	return nil, err
}

// patch writes the request to the Secret. If request is nil, it deletes the request in the Secret.
func (c *conn) patch(ctx context.Context, request []byte) error {
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{contract.CallRequestField: request}})
	if err != nil {
		return errors.New("the call can't be encoded")
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = c.calls.Namespace, contract.CallSecretPrefix+c.id
	return c.calls.Client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, patch))
}

// await waits for the answer. If the host doesn't begin the call in time, or stops reporting, the connection is lost.
func (c *conn) await(ctx context.Context, call contract.Call) (json.RawMessage, error) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var seen string
	news, began := time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("calling %s: %w", call.Verb, context.Cause(ctx))
		case <-ticker.C:
		}
		secret, err := c.calls.Read(ctx, contract.CallSecretPrefix+c.id)
		if err != nil {
			return nil, err
		}
		if secret == nil {
			return nil, c.lost(contract.NewProblem(contract.ReasonConnectionLost,
				"calling %s: secret %s%s was deleted", call.Verb, contract.CallSecretPrefix, c.id))
		}
		if report := string(secret.Data[contract.CallHostField]); report != seen {
			var now contract.CallHost
			seen, news = report, time.Now()
			_ = json.Unmarshal([]byte(report), &now) // a report that can't be parsed still shows that the host runs
			if now.Answered(call.ID) && len(now.Answer) == 0 {
				return nil, contract.NewProblem(contract.ReasonDaemonCallFailed, "calling %s: %s", call.Verb,
					host.Printable(now.Fault, maxFault))
			}
			if now.Answered(call.ID) {
				return now.Answer, nil
			}
			began = began || now.Call == call.ID
		}
		switch quiet := time.Since(news); {
		case !began && quiet > pickUp:
			return nil, c.lost(contract.NewProblem(contract.ReasonHostSilent, "calling %s: the host has not begun the "+
				"call for %s", call.Verb, pickUp))
		case began && quiet > silence:
			return nil, c.lost(contract.NewProblem(contract.ReasonConnectionLost, "calling %s: the host has been "+
				"silent for %s", call.Verb, silence))
		}
	}
}

func (c *conn) lost(problem *contract.Problem) error {
	c.err = problem
	return problem
}
