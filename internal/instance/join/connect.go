package join

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// slotRetry is how long a queued host waits when it is not woken before. Being woken is the rule.
const slotRetry = time.Minute

// connect opens the connection, pins the host key, notes where the host was reached, and takes a
// slot. Dialling needs no slot, so a dead host takes none.
func (j *Join) connect(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	if !session.Connected() {
		if outcome := j.Access.Dial(ctx, instance, session); !outcome.IsDone() {
			return outcome
		}
	}
	key, err := ownHostKey(ctx, instance, session)
	if err != nil {
		return journey.Fail(err)
	}
	instance.Status.HostKey = key
	journey.NoteAddress(instance, session.Conn, j.Now())
	if !j.Slots.Acquire(instance.UID) {
		return journey.WaitEndless(slotRetry, contract.ReasonWaitingForSlot, "connected; waiting for a join slot")
	}
	return journey.Done()
}

// userDataKeys is how a host key begins that user data may have brought: ours of now, which we
// know, or one of before, which nobody does any more.
const userDataKeys = "ssh-ed25519 "

// ownHostKey is the key to pin: the one that the host showed, unless others have it, too, or may.
// Then the host proves over this very connection which keys are its own. A host that has no other
// keeps the one that it showed, and is asked again the next time.
func ownHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance, session *journey.Session) (string, error) {
	shown := strings.TrimSpace(session.Conn.HostKey())
	machine := instance.Spec.Source != nil && instance.Spec.Source.Kind == v1alpha1.SourceMachine
	prover, ok := session.Conn.(host.Prover)
	switch {
	case !ok, instance.Spec.HostKey != "":
		return shown, nil
	case session.SharedKey != "" && shown == session.SharedKey:
	case !machine || !strings.HasPrefix(shown, userDataKeys):
		return shown, nil
	}
	proven, err := prover.ProveHostKeys(ctx)
	if err != nil {
		return "", fmt.Errorf("having the host prove its own keys: %w", err)
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
