package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// leavingTime is how long a Machine waits in silence for an address whose instance leaves. An instance
// whose host is destroyed, which is why clouds give its address to another, is gone in seconds.
const leavingTime = time.Minute

// waiting is since when Machines have a problem, as this operator has seen it: what the API server's
// clock says, as of an instance that leaves, may be of another time.
type waiting struct {
	mu    sync.Mutex
	since map[types.UID]begun
	// silence says for how long a problem of a Machine is kept quiet, and by what it is known: with another
	// one that time begins anew. One that is known by nothing is kept quiet for good.
	silence func(inventory.Machine, *contract.Problem) (what string, lasts time.Duration)
}

// begun is what a Machine began to wait for, and when.
type begun struct {
	what string
	at   time.Time
}

// newHeld is for Machines that wait for an address whose instance leaves: for each one anew.
func newHeld() *waiting {
	return &waiting{silence: func(_ inventory.Machine, problem *contract.Problem) (string, time.Duration) {
		return problem.Detail, leavingTime
	}}
}

// newRejected is for Machines that become no nodes. Which addresses or which instance a problem names may
// change while it lasts.
func newRejected() *waiting {
	return &waiting{silence: func(m inventory.Machine, problem *contract.Problem) (string, time.Duration) {
		what := string(problem.Reason)
		switch problem.Reason {
		case contract.ReasonMachineAddressUnusable:
			if m.NodeRef != "" {
				return "", 0 // only DNS does not answer
			}
			return what, policy.FirstBoot // until VMware Tools run, a Machine of vSphere has only a name
		case contract.ReasonAddressDuplicate, contract.ReasonInstanceRefused:
			return what, leavingTime // the other's instance may be told to leave in a moment, and a quota have room
		}
		return what, 0
	}}
}

// overdue takes the problems of all Machines that have one, and answers those that have lasted. again is
// when the next one will have, 0 for never.
func (w *waiting) overdue(machines []inventory.Machine, problems map[string]*contract.Problem,
	now time.Time) (lasting map[string]*contract.Problem, again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := map[types.UID]begun{}
	lasting = map[string]*contract.Problem{}
	for _, m := range machines {
		problem := problems[m.Name]
		if problem == nil {
			continue
		}
		what, lasts := w.silence(m, problem)
		if what == "" {
			continue
		}
		one := w.since[m.UID]
		if one.what != what {
			one = begun{what: what, at: now}
		}
		since[m.UID] = one
		if left := lasts - now.Sub(one.at); left > 0 {
			again = policy.Soonest(again, left)
		} else {
			lasting[m.Name] = problem
		}
	}
	w.since = since
	return lasting, again
}
