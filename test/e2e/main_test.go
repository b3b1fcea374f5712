package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
)

const (
	// sharedHosts is the number of hosts in the shared scene. Each test uses hosts that no other test has used.
	sharedHosts = 52
	// soon is the time limit for operations that normally take a few seconds. It is long because CI machines are slow.
	// A test that passes doesn't wait for it.
	soon = 4 * time.Minute
)

// stage is a scene that several tests can share, because the start of a scene takes seconds. Each test uses its own
// hosts of the stage.
type stage struct {
	*scene.Scene
	mu     sync.Mutex
	next   int
	listed map[string]string
}

// theShared is the stage that most tests use one after the other. It is a global variable because TestMain can't pass
// values to tests.
var theShared = struct {
	stage *stage
	line  line
}{line: line{name: "shared stage"}}

// sharedStage waits for the test's turn and returns the shared stage.
func sharedStage(t *testing.T) *stage {
	t.Helper()
	inLine(t, &theShared.line)()
	return theShared.stage
}

// thePlanes are the control planes that tests with their own scene use one after the other.
var thePlanes scene.Planes

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard()) // discard logs of the libraries in this process; the operator writes its own log
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if err := sideBySide(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	s, err := scene.Start(ctx, options(sharedHosts))
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the shared scene:", err)
		return 1
	}
	theTimes.began = time.Now()
	theShared.stage = &stage{Scene: s, listed: map[string]string{}}
	defer func() {
		fmt.Fprint(os.Stderr, &theTimes, &thePlanes, "\n")
		if err := errors.Join(s.Close(), closeCloud(), thePlanes.Close()); err != nil {
			fmt.Fprintln(os.Stderr, "closing the shared scenes:", err)
			code = 1
		}
	}()
	return m.Run()
}

// options returns the options that the scenes of these tests have in common.
func options(hosts int) scene.Options {
	return scene.Options{
		Operator: os.Getenv("WMCO_OPERATOR"), Progress: os.Stderr, Audit: true, Debug: true,
		// The default is 10 s, so that real nodes have time to show that they are healthy.
		Settings: &v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{MaxConcurrentJoins: 20,
			SettleTime: &metav1.Duration{Duration: time.Second}}},
		Hosts: fleet.Options{Count: hosts, Edit: func(i int, o *sim.Options) {
			if i%5 == 1 {
				o.Shell = sim.ShellPowerShell
			}
		}},
	}
}

// own starts a scene for one test. If too many tests already have a scene, it waits. The scene borrows a control plane
// that other tests have used before. If the test needs a special control plane, own starts a new one.
func own(t *testing.T, o scene.Options) *stage {
	t.Helper()
	o.Planes = &thePlanes
	return alone(t, o)
}

// alone is like own, but with a control plane that no other test uses. Tests need it if they break the control plane
// or count its requests.
func alone(t *testing.T, o scene.Options) *stage {
	t.Helper()
	waitForPlace(t)
	s, err := scene.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the operator's log: %s", s.Operator.Tail(6000))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &stage{Scene: s, listed: map[string]string{}}
}

// hosts takes fresh hosts of a stage.
func (s *stage) hosts(t *testing.T, n int) []*fleet.Host {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next+n > len(s.Fleet.Hosts) {
		t.Fatalf("the stage has %d hosts, and they are all taken: raise its number", len(s.Fleet.Hosts))
	}
	s.next += n
	return s.Fleet.Hosts[s.next-n : s.next]
}

// add adds hosts to the list.
func (s *stage) add(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hosts {
		key, value := h.Entry()
		s.listed[key] = value
	}
	s.write(t)
}

// addRaw adds unchanged entries to the list.
func (s *stage) addRaw(t *testing.T, entries map[string]string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, value := range entries {
		s.listed[key] = value
	}
	s.write(t)
	t.Cleanup(func() { s.dropRaw(t, entries) })
}

// dropRaw takes such entries off the list.
func (s *stage) dropRaw(t *testing.T, entries map[string]string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range entries {
		delete(s.listed, key)
	}
	s.write(t)
}

// drop takes hosts off the list.
func (s *stage) drop(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hosts {
		key, _ := h.Entry()
		delete(s.listed, key)
	}
	s.write(t)
}

func (s *stage) write(t *testing.T) {
	t.Helper()
	if err := s.ListRaw(context.WithoutCancel(t.Context()), s.listed); err != nil {
		t.Fatal(err)
	}
}

// join lists hosts and waits until they are nodes.
func (s *stage) join(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	s.add(t, hosts...)
	s.ready(t, hosts...)
}

func (s *stage) ready(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	if err := s.WaitReady(t.Context(), soon, hosts...); err != nil {
		t.Fatal(errors.Join(err, errors.New(s.Operator.Tail(3000))))
	}
}

func (s *stage) gone(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	if err := s.WaitGone(t.Context(), soon, hosts...); err != nil {
		t.Fatal(err)
	}
}

// fixOf returns the fix in the message of an instance.
func fixOf(i *v1alpha1.WindowsInstance) string {
	_, fix := contract.Reason(i.Status.Reason()).Explained(i.Status.Message())
	return fix
}

// instance reads a host's instance.
func (s *stage) instance(t *testing.T, host *fleet.Host) *v1alpha1.WindowsInstance {
	t.Helper()
	i, err := s.Instance(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// await looks until a condition holds.
func (s *stage) await(t *testing.T, what string, holds func(ctx context.Context) (bool, string, error)) {
	t.Helper()
	if err := s.Await(t.Context(), soon, what, holds); err != nil {
		t.Fatal(err)
	}
}
