package verbs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// services stops and deletes our services. It stops the daemon first, because the daemon would restart the others.
func (c *cleaning) services(ctx context.Context) {
	names := slices.Sorted(maps.Keys(c.ourServices(ctx)))
	if i := slices.Index(names, contract.ServiceDaemon); i >= 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, contract.ServiceDaemon)
	}
	for _, name := range names {
		if err := c.host.Services.Stop(ctx, name); err != nil && !errors.Is(err, winos.ErrNotFound) {
			c.left("%w", err)
			// Continue and delete the service. If it still runs then, the next boot completes the deletion.
		}
		if err := c.host.Services.Delete(ctx, name); err != nil {
			c.left("removing service %s: %w", name, err)
			continue
		}
		if _, err := c.host.Services.Get(ctx, name); !errors.Is(err, winos.ErrNotFound) {
			c.left("service %s is marked for deletion but still there; is it open in the Services console? %w", name,
				winos.ErrInUse)
			continue
		}
		c.removed("service", name)
		delete(c.state.Services, name)
	}
	c.save()
}

// ourServices returns the services whose description contains the operator's mark. It also returns services whose
// description was changed later, if the state file lists them and their program is in C:\k.
func (c *cleaning) ourServices(ctx context.Context) map[string]winos.Service {
	names, err := c.host.Services.List(ctx)
	if err != nil {
		c.left("listing services: %w", err)
		names = slices.Sorted(maps.Keys(c.state.Services))
	}
	ours := map[string]winos.Service{}
	for _, name := range names {
		if strings.EqualFold(name, contract.ServiceCleanup) || name == contract.ServiceAttend && !c.where.Released {
			continue // this process, or the service that started this process
		}
		s, err := c.host.Services.Get(ctx, name)
		_, listed := c.state.Services[name]
		if err != nil {
			// Ignore the error for other services: Windows has services that even administrators can't open.
			if listed && !errors.Is(err, winos.ErrNotFound) {
				c.left("looking at service %s: %w", name, err)
			}
			continue
		}
		if contract.IsManaged(s.Description) ||
			listed && contract.Within(contract.DirK, contract.Executable(s.Command)) {
			ours[s.Name] = s
		}
	}
	return ours
}

const killLimit = 30 * time.Second

// programs kills the daemon's programs that are still running. These include containerd's shims: if no drain has
// removed a container, its shim outlives containerd, and the container ends when the shim ends. If a process can't be
// killed, it ends at the next boot.
func (c *cleaning) programs(ctx context.Context) {
	left, err := c.host.Programs.Processes(ctx, contract.DirK)
	if err != nil && !errors.Is(err, winos.ErrUnsupported) {
		c.left("listing processes: %w", err)
	}
	for _, p := range left {
		if !c.oursRuns(p.Exe) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, killLimit)
		if err = c.host.Programs.Kill(limited, p.PID, winos.Runs(p.Exe)); err != nil {
			c.log.Info("a process can't be ended", "pid", p.PID, "exe", p.Exe, "detail", err.Error())
		}
		cancel()
	}
}

// oursRuns reports whether the daemon installed a program below C:\k. It checks only the entry of C:\k that is or
// contains the program.
func (c *cleaning) oursRuns(exe string) bool {
	if c.state.Directories.Has(contract.DirK) {
		return true
	}
	name, _, _ := strings.Cut(exe[len(contract.DirK)+1:], `\`)
	entry := contract.DirK + `\` + name
	makesRoom := func(aside string) bool { return strings.EqualFold(winos.StartedPath(aside), entry) }
	return c.lost || strings.EqualFold(entry, contract.DirStore) || c.ours(entry) ||
		slices.ContainsFunc(c.state.Aside, makesRoom)
}
