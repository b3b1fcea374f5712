package apply

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
)

// addressGrace is how long the host may lack the node's address, for example while a link is down.
const addressGrace = time.Minute

// nodeIP returns the address that the WindowsInstance sets. If it sets none, nodeIP returns the node's last address. If
// the node has no last address, or the host has lacked that address for addressGrace, the result is empty, and the node
// gets the address of the default route.
func (a *Applier) nodeIP(ctx context.Context) string {
	last := a.state.LastIP
	if last == "" || a.state.NodeIP != "" {
		return a.state.NodeIP
	}
	if plan.CheckNodeIP(ctx, a.host, last) == nil {
		a.missing = time.Time{}
		return last
	}
	if a.missing.IsZero() {
		a.missing = time.Now() // not by the host's clock, which may be corrected when a link comes up
	}
	if time.Since(a.missing) >= addressGrace {
		return ""
	}
	return last
}

// isMoved reports whether the node needs a different address now.
func (a *Applier) isMoved(ctx context.Context) bool {
	return a.state.LastIP != "" && a.last.Facts[contract.FactNodeIP] != "" && a.nodeIP(ctx) == ""
}

// keepAddress stores the node's current address as the last address, unless the WindowsInstance sets an address.
func (a *Applier) keepAddress(ctx context.Context, now string) {
	if a.state.NodeIP != "" || now == "" || now == a.state.LastIP {
		return
	}
	logr.FromContextOrDiscard(ctx).Info("the node has another address", "before", a.state.LastIP, "now", now)
	a.state.LastIP = now
}
