package join

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// slotRetry is how often the operator checks a host that waits for a join slot. Normally, an event comes earlier.
const slotRetry = time.Minute

// connect opens the connection, pins the host key, and then takes a join slot. So an unreachable host takes no slot. If
// a host joins by itself, its key was pinned when the operator approved the host's certificate.
func (j *Join) connect(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	if !session.Connected() {
		if outcome := j.Access.Dial(ctx, instance, session); !outcome.IsDone() {
			return outcome
		}
	}
	if instance.Spec.ByItself == nil {
		key, err := ownHostKey(ctx, instance, session)
		if err != nil {
			return journey.Fail(err)
		}
		instance.Status.HostKey = key
	}
	if !j.Slots.Acquire(client.ObjectKeyFromObject(instance)) {
		return journey.WaitEndless(slotRetry, contract.ReasonWaitingForSlot, "connected; waiting for a join slot")
	}
	return journey.Done()
}

// userDataKeys is the type of each host key in user data. The operator no longer knows the keys of earlier user data,
// so it checks only the type.
const userDataKeys = "ssh-ed25519 "

// ownHostKey returns the host key to pin. If other hosts may have the key that the host showed, the host must prove
// over this connection which keys are its own. If the host proves no other key, ownHostKey returns the shown key, and
// the next connection asks for a proof again.
func ownHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance, session *journey.Session) (string, error) {
	shown := strings.TrimSpace(session.Conn.HostKey())
	machine := instance.Spec.Source != nil && instance.Spec.Source.Kind == v1alpha1.SourceMachine
	switch {
	case instance.Spec.HostKey != "":
		return shown, nil
	case session.SharedKey != "" && shown == session.SharedKey:
	case !machine || !strings.HasPrefix(shown, userDataKeys):
		return shown, nil
	}
	proven, err := session.Conn.ProveHostKeys(ctx)
	if err != nil {
		return "", fmt.Errorf("asking the host to prove its own keys: %w", err)
	}
	own := shown
	for _, key := range proven {
		switch key = strings.TrimSpace(key); {
		case key == "" || key == shown || key == session.SharedKey:
		case !machine || !strings.HasPrefix(key, userDataKeys):
			return key, nil
		case own == shown:
			own = key
		}
	}
	return own, nil
}
