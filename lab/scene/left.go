package scene

import (
	"context"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
)

// Left lists the differences between the current state of a host and its state at creation, with three exceptions.
// Logs stay on purpose. The external network doesn't belong to the operator. If the host joined by itself, the program
// that removes its service is still in use, so the next boot deletes it.
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
