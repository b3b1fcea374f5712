package scene

import (
	"context"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
)

// Left lists the differences between the current state of a host and its state when it was new. It ignores three
// differences: logs, because the operator leaves them on purpose; the external network, because it doesn't belong to
// the operator; and, if the host joined by itself, the program that removes the host's service. This program is still
// in use, so Windows deletes it at the next boot.
func Left(host *fleet.Host) []string {
	now, err := host.Snapshot(context.Background())
	if err != nil {
		return []string{err.Error()}
	}
	left := sim.Diff(host.Before, now, contract.DirLog, externalDir)
	return slices.DeleteFunc(left, func(line string) bool {
		return strings.HasPrefix(line, "+ network "+externalNetwork) ||
			host.Server == nil && strings.HasPrefix(line, `+ file C:\WINDOWS\TEMP\WMCO-`)
	})
}
