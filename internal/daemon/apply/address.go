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
func (k *Applier) nodeIP(ctx context.Context) string {
	last := k.state.LastIP
	if last == "" || !k.choosesAddress() {
		return k.state.NodeIP
	}
	if plan.CheckNodeIP(ctx, k.host, last) == nil {
		k.missing = time.Time{}
		return last
	}
	if k.missing.IsZero() {
		k.missing = time.Now() // not the host's: a link that comes up is when its clock is set
	}
	if time.Since(k.missing) >= addressGrace {
		return ""
	}
	return last
}

// choosesAddress says whether somebody is to get the node's address, and its instance does not say it.
func (k *Applier) choosesAddress() bool {
	return k.state.NodeIP == "" && plan.AsksFor(k.state.Manifest, contract.FactNodeIP)
}

// isMoved says that the node has to get another address than it had.
func (k *Applier) isMoved(ctx context.Context) bool {
	return k.state.LastIP != "" && k.choosesAddress() && k.nodeIP(ctx) == ""
}

// keepAddress keeps the address that the default route told.
func (k *Applier) keepAddress(ctx context.Context, facts plan.Lookup[contract.Fact]) {
	if !k.choosesAddress() {
		return
	}
	now, problem := facts(contract.FactNodeIP)
	if problem != nil || now == k.state.LastIP {
		return
	}
	logr.FromContextOrDiscard(ctx).Info("the node has another address", "before", k.state.LastIP, "now", now)
	k.state.LastIP = now
}
