package machine

import (
	"fmt"
	"sync"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Event reasons that users of the contract know.
const (
	// eventSetupFailure is said of a Machine that does not become a node.
	eventSetupFailure = "MachineSetupFailure"
	// eventDeleted, eventDeletionFailed and eventDeletionRestricted are said of one that makes room
	// for another, or should and does not.
	eventDeleted            = "MachineDeleted"
	eventDeletionFailed     = "MachineDeletionFailed"
	eventDeletionRestricted = "MachineDeletionRestricted"
)

// told is what was last said about each Machine, so that it is said once, and again only when it is
// another trouble.
type told struct {
	mu    sync.Mutex
	notes map[types.UID]string
}

// news takes all notes for told and answers whether each of them was not.
func (t *told) news(notes map[types.UID]string) map[types.UID]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := map[types.UID]bool{}
	for uid, note := range notes {
		fresh[uid] = t.notes[uid] != note
	}
	t.notes = notes
	return fresh
}

// tellProblems says at the Machines which of them can't become nodes, and which wait for too long.
func (r *Reconciler) tellProblems(machines []inventory.Machine, rejected, overdue map[string]*contract.Problem) {
	// Events that differ in their note only are counted as one, and the first one's note is kept: the
	// reason is in the action, too, and so is whether anything is waited for.
	notes, actions := map[types.UID]string{}, map[types.UID]string{}
	for action, problems := range map[string]map[string]*contract.Problem{"Read": rejected, "Wait": overdue} {
		for _, m := range machines {
			if problem := problems[m.Name]; problem != nil {
				notes[m.UID] = fmt.Sprintf("%v. %s", problem, problem.Reason.Fix())
				actions[m.UID] = action + string(problem.Reason)
			}
		}
	}
	fresh := r.told.news(notes)
	for _, m := range machines {
		if fresh[m.UID] {
			r.events.Eventf(reference(m), nil, corev1.EventTypeWarning, eventSetupFailure, actions[m.UID], "%s",
				notes[m.UID])
		}
	}
}

// tellDeleted says that a Machine makes room for another.
func (r *replacer) tellDeleted(due dueMachine) {
	reason := contract.ReasonMachineReplaced
	r.events.Eventf(reference(due.machine), nil, corev1.EventTypeNormal, eventDeleted, "Replace"+string(due.cause),
		"its host does not accept the present private key; its MachineSet makes another (%s %s)", reason.Code(),
		reason)
}

// tellFailed says that a Machine could not be deleted.
func (r *replacer) tellFailed(due dueMachine, err error) {
	r.events.Eventf(reference(due.machine), nil, corev1.EventTypeWarning, eventDeletionFailed,
		"Replace"+string(due.cause), "%.900v", err)
}

// tellRestricted says, once for each reason, why Machines that should make room do not.
func (r *replacer) tellRestricted(due []dueMachine, decisions map[string]policy.ReplaceDecision) {
	notes := map[types.UID]string{}
	for _, d := range due {
		if decision, restricted := decisions[d.machine.Name]; restricted {
			notes[d.machine.UID] = string(decision.Reason) // what it says changes with every node that comes or goes
		}
	}
	fresh := r.told.news(notes)
	for _, d := range due {
		decision, restricted := decisions[d.machine.Name]
		if !restricted || !fresh[d.machine.UID] {
			continue
		}
		problem := contract.NewProblem(decision.Reason, "%.500s", decision.Message)
		r.events.Eventf(reference(d.machine), nil, corev1.EventTypeWarning, eventDeletionRestricted,
			"Replace"+string(decision.Reason), "%v. %.400s", problem, decision.Reason.Fix())
	}
}

func reference(m inventory.Machine) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: machinev1beta1.GroupVersion.String(), Kind: "Machine", Namespace: m.Namespace, Name: m.Name,
		UID: m.UID,
	}
}
