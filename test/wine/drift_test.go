//go:build linux

package wine_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/wine/remote"
)

// drift is a change that a user makes on a host, and the state after the repair.
type drift struct {
	name   string
	spoil  func(ctx context.Context, host *remote.Host) error
	mended func(ctx context.Context, host *remote.Host) (bool, string, error)
}

// While the operator is stopped, the test changes services, files and other settings of a host. The daemon must repair
// all of them. It checks services every few seconds, and everything else every few minutes. Therefore, the test first
// makes all other changes at once, and waits for their repair last.
func TestA13_DriftIsRepairedWithoutTheOperator(t *testing.T) {
	s := shared
	h := s.host(steady)
	host := windows(t, h)
	if err := s.Operator.Stop(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Operator.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}()
	slow := lasting(t, host)
	for _, d := range slow {
		d.harm(t, host)
	}
	for _, d := range serviceDrifts(t, host) {
		t.Run(d.name, func(t *testing.T) {
			d.harm(t, host)
			s.mends(t, host, d)
			s.await(t, "all services to run",
				func(ctx context.Context) (bool, string, error) { return s.allRun(ctx, t, h) })
		})
	}
	for _, d := range slow {
		t.Run(d.name, func(t *testing.T) { s.mends(t, host, d) })
	}
	s.await(t, "all services to run", func(ctx context.Context) (bool, string, error) { return s.allRun(ctx, t, h) })
}

// harm makes the change, and checks that there is something to repair.
func (d drift) harm(t *testing.T, host *remote.Host) {
	t.Helper()
	if held, how, err := d.mended(t.Context(), host); err != nil || !held {
		t.Fatalf("%s: the state was wrong before the change: %s, %v", d.name, how, err)
	}
	if err := d.spoil(t.Context(), host); err != nil {
		t.Fatalf("%s: %v", d.name, err)
	}
	if held, _, err := d.mended(t.Context(), host); err != nil || held {
		t.Fatalf("%s: the change has no effect (%v), so this test can't fail", d.name, err)
	}
}

func (s *stage) mends(t *testing.T, host *remote.Host, d drift) {
	t.Helper()
	s.await(t, d.name+", and is mended", func(ctx context.Context) (bool, string, error) { return d.mended(ctx, host) })
}

// serviceDrifts returns the changes of services. They are tested one after the other, because services that depend on a
// stopped service also stop.
func serviceDrifts(t *testing.T, host *remote.Host) []drift {
	t.Helper()
	return []drift{
		serviceDrift(t, host, "the command line of a service", contract.ServiceCSIProxy,
			func(ctx context.Context, s winos.Service) error {
				s.Command += " -v=9"
				return host.Services.Apply(ctx, s.ServiceConfig)
			}),
		serviceDrift(t, host, "a service is stopped", contract.ServiceExporter,
			func(ctx context.Context, s winos.Service) error {
				return host.Services.Stop(ctx, s.Name)
			}),
		serviceDrift(t, host, "a service is deleted", contract.ServiceCSIProxy,
			func(ctx context.Context, s winos.Service) error {
				return errors.Join(host.Services.Stop(ctx, s.Name), host.Services.Delete(ctx, s.Name))
			}),
		serviceDrift(t, host, "the command line of a service with dependants", contract.ServiceHybridOverlay,
			func(ctx context.Context, s winos.Service) error {
				s.Command += " --loglevel=6"
				return host.Services.Apply(ctx, s.ServiceConfig)
			}),
		serviceDrift(t, host, "the real containerd and what depends on it are stopped", contract.ServiceContainerd,
			func(ctx context.Context, s winos.Service) error {
				return host.Services.Stop(ctx, s.Name)
			}),
	}
}

// lasting returns the changes that the daemon detects only when it checks everything.
func lasting(t *testing.T, host *remote.Host) []drift {
	t.Helper()
	return []drift{
		fileDrift(t, host, "a file is changed", contract.PathKubeletConfig, func(path string) error {
			return winos.WriteFile(host.Files, path, strings.NewReader("{}"), winos.AccessAdministrators)
		}),
		fileDrift(t, host, "a file is deleted", contract.PathCNIConfig, host.Files.Remove),
		fileDrift(t, host, "a program is deleted", contract.DirCNI+`\win-bridge.exe`, host.Files.Remove),
		{
			name: "an environment variable is removed",
			spoil: func(ctx context.Context,
				host *remote.Host) error {
				return host.Environment.Unset(ctx, proxyVariable)
			},
			mended: func(ctx context.Context, host *remote.Host) (bool, string, error) {
				all, err := host.Environment.All(ctx)
				return all[proxyVariable] == proxyOfCluster, all[proxyVariable], err
			},
		},
	}
}

// serviceDrift returns a change of a service. After the repair, the service must have its earlier configuration, and
// run.
func serviceDrift(t *testing.T, host *remote.Host, name, service string,
	spoil func(ctx context.Context, s winos.Service) error) drift {
	t.Helper()
	before, err := host.Services.Get(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	return drift{
		name:  name,
		spoil: func(ctx context.Context, _ *remote.Host) error { return spoil(ctx, before) },
		mended: func(ctx context.Context, host *remote.Host) (bool, string, error) {
			now, err := host.Services.Get(ctx, service)
			if errors.Is(err, winos.ErrNotFound) {
				return false, "it is gone", nil
			}
			return now.State == winos.ServiceRunning && now.Command == before.Command &&
				now.Description == before.Description, fmt.Sprintf("%+v", now), err
		},
	}
}

// fileDrift returns a change of a file. After the repair, the file must have its earlier content.
func fileDrift(t *testing.T, host *remote.Host, name, path string, spoil func(path string) error) drift {
	t.Helper()
	before, err := winos.ReadFile(host.Files, path)
	if err != nil {
		t.Fatal(err)
	}
	return drift{
		name:  name,
		spoil: func(context.Context, *remote.Host) error { return spoil(path) },
		mended: func(_ context.Context, host *remote.Host) (bool, string, error) {
			now, err := winos.ReadFile(host.Files, path)
			if errors.Is(err, fs.ErrNotExist) {
				return false, "it is gone", nil
			}
			return string(now) == string(before), fmt.Sprintf("the file has %d bytes, want %d", len(now), len(before)),
				err
		},
	}
}

// allRun reports whether all services of a host's manifest are running.
func (s *stage) allRun(ctx context.Context, t *testing.T, h *fleet.Host) (bool, string, error) {
	t.Helper()
	host := windows(t, h)
	for _, wanted := range s.manifest(t, h).Services {
		service, err := host.Services.Get(ctx, wanted.Name)
		if errors.Is(err, winos.ErrNotFound) {
			return false, wanted.Name + " is gone", nil
		}
		if err != nil || service.State != winos.ServiceRunning {
			return false, fmt.Sprintf("%s is %s", wanted.Name, service.State), err
		}
	}
	return true, "", nil
}
