//go:build linux

package wine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/wine/fault"
)

func TestA32_AHostThatLeavesIsAsItWasBeforeAndMayComeBack(t *testing.T) {
	s := shared
	h := s.host(leaver)
	host := windows(t, h)
	all, err := host.Environment.All(t.Context())
	if err != nil || all[proxyVariable] != proxyOfCluster {
		t.Fatalf("the variable is %q, %v; want the cluster's", all[proxyVariable], err)
	}
	if left := scene.Left(h); len(left) < 20 {
		t.Fatalf("joining changed only %q, so this test can't fail", left)
	}
	s.leave(t, h)
	if left := scene.Left(h); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if all, err = host.Environment.All(t.Context()); err != nil || all[proxyVariable] != proxyBefore {
		t.Errorf("the variable is %q, %v; want what it was before", all[proxyVariable], err)
	}
	logs, err := os.ReadDir(machine(h).Path(contract.DirLog))
	if err != nil || len(logs) == 0 {
		t.Errorf("the logs were not kept: %v, %v", logs, err)
	}
	for _, service := range []string{contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceDaemon} {
		if _, err = host.Services.Get(t.Context(), service); err == nil {
			t.Errorf("service %s was not removed", service)
		}
	}
	s.comeBack(t, h)
}

// Two containers run on the host. One of their shims hangs, as if in a driver, so that no program can end it. The
// operator must clean everything else, and must advise a reboot once. At the next boot, Windows deletes the shim's exe.
func TestA41_AHostWhoseProgramsStillRunIsCleanedAndWhatWaitsForItsBootIsToldOnce(t *testing.T) {
	s := shared
	h := s.host(leaver)
	background(t, h, contract.PathContainerdShim)
	hung := background(t, h, contract.PathContainerdShim, fault.Protected)
	s.leave(t, h)
	if left := scene.Left(h); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if still := running(h, contract.PathContainerdShim); len(still) != 1 || !strings.Contains(still[0], fault.Protected) {
		t.Errorf("%q still run; want only the shim that can't be ended", still)
	}
	aside := machine(h).Path(`C:\windows\temp`) + "/wmco-*.old"
	if files, err := filepath.Glob(aside); err != nil || len(files) != 1 {
		t.Errorf("renamed exes: %q, %v; want only the exe in use", files, err)
	}
	s.await(t, "the operator to advise a reboot", func(ctx context.Context) (bool, string, error) {
		all, err := s.advices(ctx, h)
		return len(all) > 0, "", err
	})
	if err := machine(h).Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = hung() // the boot ended the shim
	if files, err := filepath.Glob(aside); err != nil || len(files) > 0 {
		t.Errorf("after the boot, the renamed exes %q are left, %v", files, err)
	}
	s.comeBack(t, h)
	// The host has joined again. Events are written in order, so all events about its first removal exist by now.
	if all, err := s.advices(t.Context(), h); err != nil || len(all) != 1 || all[0].Series != nil {
		t.Errorf("a reboot must be advised by exactly one event: %+v, %v", all, err)
	}
}

// advices returns the events about a host's instance that advise a reboot.
func (s *stage) advices(ctx context.Context, h *fleet.Host) (found []eventsv1.Event, err error) {
	list := &eventsv1.EventList{}
	if err = s.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	for _, e := range list.Items {
		if e.Reason == journey.EventRebootAdvised && e.Regarding.Kind == "WindowsInstance" &&
			strings.Contains(e.Note, h.Address().Addr().String()) {
			found = append(found, e)
		}
	}
	return found, nil
}

// leave deletes a host's entry, and waits until the host has left.
func (s *stage) leave(t *testing.T, h *fleet.Host) {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(s.Fleet.Hosts), func(other *fleet.Host) bool { return other == h })
	if err := s.List(t.Context(), others...); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.WaitGone(t.Context(), soon, h); err != nil {
		t.Fatal(err)
	}
	t.Logf("the host had left after %.1f s", time.Since(began).Seconds())
}

func (s *stage) comeBack(t *testing.T, h *fleet.Host) {
	t.Helper()
	if err := s.List(t.Context(), s.Fleet.Hosts...); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.WaitReady(t.Context(), soon, h); err != nil {
		t.Fatal(err)
	}
	t.Logf("the host had joined again after %.1f s", time.Since(began).Seconds())
}
