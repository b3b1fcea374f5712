//go:build linux

package wine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/wine/remote"
)

// Snapshot renders the state of the host like the snapshot of a simulated machine: files (with their access and the
// digest of their content), services, environment, certificates, host name. It omits HNS networks, the states of
// services, and Wine's files in C:\windows.
func (m *Machine) Snapshot(ctx context.Context) (sim.Snapshot, error) {
	host, err := m.Windows()
	if err != nil {
		return nil, err
	}
	s := sim.Snapshot{}
	for _, part := range []func(context.Context, *remote.Host, sim.Snapshot) error{m.snapshotFiles, snapshotServices,
		snapshotEnvironment, snapshotTrust, snapshotName} {
		if err = part(ctx, host, s); err != nil {
			return nil, fmt.Errorf("looking at the whole host: %w", err)
		}
	}
	return s, nil
}

func (m *Machine) snapshotFiles(_ context.Context, host *remote.Host, s sim.Snapshot) error {
	var walk func(dir string) error
	walk = func(dir string) error {
		infos, err := host.Files.List(dir)
		if err != nil {
			return err
		}
		for _, info := range infos {
			path := strings.TrimSuffix(dir, `\`) + `\` + info.Name
			if strings.EqualFold(path, `C:\windows`) {
				continue
			}
			what := "directory"
			if info.Dir {
				if err = walk(path); err != nil {
					return err
				}
			} else if what, err = m.describe(path); err != nil {
				return err
			}
			if info.Access == winos.AccessAdministrators {
				what += " administrators only"
			}
			s["file "+strings.ToLower(path)] = what
		}
		return nil
	}
	return walk(`C:\`)
}

// describe reads a file directly, without Wine, because this is faster.
func (m *Machine) describe(path string) (string, error) {
	file, err := os.Open(m.Path(path))
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	size, err := io.Copy(hash, file)
	return fmt.Sprintf("%d bytes %s", size, hex.EncodeToString(hash.Sum(nil))), err
}

func snapshotServices(ctx context.Context, host *remote.Host, s sim.Snapshot) error {
	names, err := host.Services.List(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		c, err := host.Services.Get(ctx, name)
		if err != nil {
			return err
		}
		s["service "+strings.ToLower(name)] = fmt.Sprintf("%q command %q after %q environment %v recovery %v reset %v",
			c.Description, c.Command,
			c.Dependencies, c.Environment, c.Recovery, c.RecoveryReset)
	}
	return nil
}

func snapshotEnvironment(ctx context.Context, host *remote.Host, s sim.Snapshot) error {
	all, err := host.Environment.All(ctx)
	for name, value := range all {
		s["environment "+strings.ToLower(name)] = value
	}
	return err
}

func snapshotTrust(ctx context.Context, host *remote.Host, s sim.Snapshot) error {
	all, err := host.Trust.List(ctx)
	for _, der := range all {
		sum := sha256.Sum256(der)
		s["certificate "+hex.EncodeToString(sum[:])] = fmt.Sprintf("%d bytes", len(der))
	}
	return err
}

func snapshotName(ctx context.Context, host *remote.Host, s sim.Snapshot) error {
	facts, err := host.Facts(ctx)
	s["hostname"] = facts.Hostname
	return err
}
