package apply

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
)

// addressGrace is how long the host may be without the node's address until the node gets another one. A link that
// goes down takes the address away for as long, and so does HNS while it makes a network.
const addressGrace = time.Minute

// nodeIP is the node's address: the one that its instance says, or else the one that it had last, for as long as the
// host has that. It is empty when the default route is to tell another one.
func (a *Applier) nodeIP(ctx context.Context) string {
	last := a.state.LastIP
	if last == "" || !a.choosesAddress() {
		return a.state.NodeIP
	}
	if plan.CheckNodeIP(ctx, a.host, last) == nil {
		a.missing = time.Time{}
		return last
	}
	if a.missing.IsZero() {
		a.missing = time.Now() // not the host's: a link that comes up is when its clock is set
	}
	if time.Since(a.missing) >= addressGrace {
		return ""
	}
	return last
}

// choosesAddress says whether somebody is to get the node's address, and its instance does not say it.
func (a *Applier) choosesAddress() bool {
	return a.state.NodeIP == "" && plan.AsksFor(a.state.Manifest, contract.FactNodeIP)
}

// isMoved says that the node has to get another address than it had.
func (a *Applier) isMoved(ctx context.Context) bool {
	return a.state.LastIP != "" && a.choosesAddress() && a.nodeIP(ctx) == ""
}

// keepAddress keeps the address that the default route told.
func (a *Applier) keepAddress(ctx context.Context, facts plan.Lookup[contract.Fact]) {
	if !a.choosesAddress() {
		return
	}
	now, problem := facts(contract.FactNodeIP)
	if problem != nil || now == a.state.LastIP {
		return
	}
	logr.FromContextOrDiscard(ctx).Info("the node has another address", "before", a.state.LastIP, "now", now)
	a.state.LastIP = now
}
