//go:build linux

package wine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/registry"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/wine"
)

// nextVersion is the version after the last upgrade.
const nextVersion = "0.1.1"

// Before a new daemon takes over, it must print its version. This daemon prints it correctly. As a service, however, it
// only counts its start and exits. At its third start, the old daemon must be restored.
func TestA29_ADaemonThatCrashesAsAServiceRestoresThePreviousOne(t *testing.T) {
	s := shared
	const name = contract.ServiceDaemon + ".exe"
	dir, exe := filepath.Join(s.dir, "payload-crashing"), filepath.Join(s.dir, "crashing.exe")
	if err := wine.Build(t.Context(), wine.Program{Package: "./test/wine/testdata/crashing"}, exe); err != nil {
		t.Fatal(err)
	}
	change := scene.Change{Versions: map[string]string{name: version + "-crashing"},
		Programs: map[string]string{name: exe}}
	if err := scene.ChangePayload(dir, s.PayloadDir(), change); err != nil {
		t.Fatal(err)
	}
	s.idle(t)
	connections, was := map[string]int64{}, s.node(t, s.host(steady)).Annotations[contract.RevisionAnnotation]
	for _, h := range s.Fleet.Hosts {
		connections[h.Name] = h.Server.Counters().Connections
	}
	began := time.Now()
	if err := s.Upgrade(t.Context(), "", dir); err != nil {
		t.Fatal(err)
	}
	config := &v1alpha1.WindowsMachineConfig{}
	s.await(t, "the rollout to be halted", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		return config.Status.Rollout.Phase == v1alpha1.RolloutHalted &&
			len(config.Status.Rollout.Failures) > 0, config.Status.Rollout.Message, err
	})
	t.Logf("halted after %.1f s: %+v", time.Since(began).Seconds(), config.Status.Rollout.Failures)
	if why := config.Status.Rollout.Failures[0].Message; !strings.Contains(why, "went back by itself") ||
		!strings.Contains(why, "the new daemon does not stay up") {
		t.Errorf("the reported reason of the failure is %s", why)
	}
	for _, h := range s.Fleet.Hosts {
		s.await(t, h.Name+" to serve at the version before", func(context.Context) (bool, string, error) {
			node := s.node(t, h)
			has := node.Annotations
			how := fmt.Sprintf("it has %s, wants %s; apply %q; cordoned: %v", has[contract.RevisionAnnotation],
				has[contract.DesiredRevisionAnnotation], has[contract.ApplyStatusAnnotation], node.Spec.Unschedulable)
			return has[contract.RevisionAnnotation] == was && has[contract.DesiredRevisionAnnotation] == was &&
				!node.Spec.Unschedulable, how, nil
		})
		if said := daemonVersion(t, h); !strings.Contains(said, version) || strings.Contains(said, "crashing") {
			t.Errorf("%s: the daemon reports the version %q", h.Name, said)
		}
		s.pids(t, h) // this checks that all services run
		s.sameProgram(t, h, s.PayloadDir())
		if n := h.Server.Counters().Connections; n != connections[h.Name] {
			t.Errorf("%s: there were %d SSH logins, want none", h.Name, n-connections[h.Name])
		}
	}
}

// idle waits until all hosts have the current settings, because an earlier test may have just restored them.
func (s *stage) idle(t *testing.T) {
	t.Helper()
	s.await(t, "no rollout to be under way", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		return scene.RolloutIdle(config, len(s.Fleet.Hosts)), fmt.Sprintf("%+v", config.Status), err
	})
}

// The new release of the operator has the same programs except a new daemon. Each daemon must download the new daemon,
// replace its own running program, and exit. Then the new program must start. The operator must not log in to the host.
// This test runs last, because it changes all hosts.
func TestA29_TheDaemonReplacesItsOwnRunningProgramAndComesBackAsTheNewOne(t *testing.T) {
	s := shared
	dir := filepath.Join(s.dir, "payload-"+nextVersion)
	if _, err := wine.WritePayload(t.Context(), dir, nextVersion, io.Discard); err != nil {
		t.Fatal(err)
	}
	operator, err := scene.BuildOperator(t.Context(), s.dir, nextVersion)
	if err != nil {
		t.Fatal(err)
	}
	all := intstr.FromInt32(int32(len(s.Fleet.Hosts)))
	s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Rollout.MaxUnavailable = &all })
	before, connections := map[string]map[string]uint32{}, map[string]int64{}
	for _, h := range s.Fleet.Hosts {
		before[h.Name], connections[h.Name] = s.pids(t, h), h.Server.Counters().Connections
		if said := daemonVersion(t, h); !strings.Contains(said, version) {
			t.Fatalf("%s: the daemon reports the version %q", h.Name, said)
		}
	}
	began := time.Now()
	if err = s.Upgrade(t.Context(), operator, dir); err != nil {
		t.Fatal(err)
	}
	for _, h := range s.Fleet.Hosts {
		s.await(t, h.Name+" to hold the next version", func(context.Context) (bool, string, error) {
			has := s.node(t, h).Annotations
			how := fmt.Sprintf("it has %s, wants %s; stage %q, apply %q", has[contract.RevisionAnnotation],
				has[contract.DesiredRevisionAnnotation],
				has[contract.StageStatusAnnotation], has[contract.ApplyStatusAnnotation])
			return strings.HasPrefix(has[contract.RevisionAnnotation], nextVersion+"-") &&
				has[contract.RevisionAnnotation] == has[contract.DesiredRevisionAnnotation], how, nil
		})
		t.Logf("%s had the new revision after %.1f s", h.Name, time.Since(began).Seconds())
	}
	for _, h := range s.Fleet.Hosts {
		if said := daemonVersion(t, h); !strings.Contains(said, nextVersion) {
			t.Errorf("%s: the daemon reports the version %q", h.Name, said)
		}
		s.sameProgram(t, h, dir)
		after := s.pids(t, h)
		for service, pid := range before[h.Name] {
			if restarted := after[service] != pid; restarted != (service == contract.ServiceDaemon) {
				t.Errorf("%s: service %s was process %d and is %d", h.Name, service, pid, after[service])
			}
		}
		if n := h.Server.Counters().Connections; n != connections[h.Name] {
			t.Errorf("%s: there were %d SSH logins, want none", h.Name, n-connections[h.Name])
		}
		log, err := os.ReadFile(machine(h).Path(contract.PathDaemonLog))
		if err != nil || !bytes.Contains(log, []byte(`"started" version="`+nextVersion+`"`)) {
			t.Errorf("%s: the daemon's log does not contain its start, %v:\n%s", h.Name, err,
				log[max(0, len(log)-2000):])
		}
	}
}

// pids returns the process ids of all managed services on a host.
func (s *stage) pids(t *testing.T, h *fleet.Host) map[string]uint32 {
	t.Helper()
	all := map[string]uint32{}
	names := []string{contract.ServiceDaemon}
	for _, service := range s.manifest(t, h).Services {
		names = append(names, service.Name)
	}
	for _, name := range names {
		service, err := windows(t, h).Services.Get(t.Context(), name)
		if err != nil || service.State != winos.ServiceRunning {
			t.Fatalf("%s: service %s is %s, %v", h.Name, name, service.State, err)
		}
		all[name] = service.PID
	}
	return all
}

// daemonVersion returns the version that the program of the daemon's service prints.
func daemonVersion(t *testing.T, h *fleet.Host) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, said bytes.Buffer
	code, err := machine(h).Run(ctx, wine.Command{Program: contract.PathDaemon, Arguments: []string{"version"},
		Stdout: &out, Stderr: &said})
	if err != nil || code != 0 {
		t.Fatalf("%s: the daemon ended with %d, %v: %s", h.Name, code, err, &said)
	}
	return out.String()
}

// sameProgram checks that a host has the daemon of a payload.
func (s *stage) sameProgram(t *testing.T, h *fleet.Host, dir string) {
	t.Helper()
	made, err := payload.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	has, err := os.ReadFile(machine(h).Path(contract.PathDaemon))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Manifest().Files {
		if f.Name == payload.NameDaemon &&
			"sha256:"+strings.TrimPrefix(string(f.Digest), "sha256:") != registry.Digest(has) {
			t.Errorf("%s: the daemon's file is %s, want %s", h.Name, registry.Digest(has), f.Digest)
		}
	}
	s.await(t, h.Name+" to remove the old program", func(context.Context) (bool, string, error) {
		left, err := filepath.Glob(machine(h).Path(contract.PathDaemon) + ".old*")
		return len(left) == 0, strings.Join(left, " "), err
	})
}
