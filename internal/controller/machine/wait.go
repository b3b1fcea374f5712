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

// waiting is since when Machines wait for an address, as this operator has seen it: what the API
// server's clock says of the instance that leaves may be of another time.
type waiting struct {
	mu    sync.Mutex
	since map[types.UID]begun
}

// begun is what a Machine began to wait for, and when. For something else it waits anew.
type begun struct {
	what string
	at   time.Time
}

// overdue takes the problems of all Machines that wait, and answers those that have lasted. again is
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
		one := w.since[m.UID]
		if one.what != problem.Detail {
			one = begun{what: problem.Detail, at: now}
		}
		since[m.UID] = one
		if left := leavingTime - now.Sub(one.at); left > 0 {
			again = policy.Soonest(again, left)
		} else {
			lasting[m.Name] = problem
		}
	}
	w.since = since
	return lasting, again
}
