package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/mirror"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
	"github.com/windows-nodes/wmco/lab/sim"
)

// happen reports a pull of an image.
func (s *stage) happen(image, served, refused string, attempts ...resolver.Attempt) {
	s.Report(resolver.Report{Image: image, Served: served, Refused: refused, Attempts: attempts})
}

// stage is a running reporter.
type stage struct {
	*mirror.Reporter
	machine *sim.Machine
	api     *fake.FakeDynamicClient

	lock   sync.Mutex
	refuse error
	policy func(corev1.Event) bool // returns true for events that the API server accepts
	events []corev1.Event
}

// inBubble runs a test with a running reporter and its own clock.
func inBubble(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, err := sim.New(sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}()
		s := &stage{machine: m,
			Reporter: mirror.NewReporter(mirror.ReporterOptions{
				NodeName: "win-a", Files: m.Host().Files, Clock: hostClock{system: m.Host().System}})}
		s.api = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{{Version: "v1", Resource: "events"}: "EventList"})
		s.api.PrependReactor("create", "events", func(action clientgotesting.Action) (bool, runtime.Object, error) {
			s.lock.Lock()
			defer s.lock.Unlock()
			if s.refuse != nil {
				return true, nil, s.refuse
			}
			object, ok := action.(clientgotesting.CreateAction).GetObject().(*unstructured.Unstructured)
			if !ok {
				return true, nil, errors.New("no object")
			}
			var event corev1.Event
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &event); err != nil {
				return true, nil, err
			}
			if s.policy != nil && s.policy(event) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, event.Name,
					errors.New("a daemon creates events about pulls only"))
			}
			s.events = append(s.events, event)
			return false, nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { s.Run(ctx, s.api) })
		defer group.Wait()
		defer cancel()
		test(t, s)
	})
}

// hostClock is the host's clock, which may be wrong.
type hostClock struct {
	clock.RealClock
	system winos.System
}

func (c hostClock) Now() time.Time { return c.system.Now() }

// said returns all events that were created until the given time has passed.
func (s *stage) said(after time.Duration) []corev1.Event {
	time.Sleep(after) // the test's own clock
	synctest.Wait()
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]corev1.Event(nil), s.events...)
}

func (s *stage) failing(err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.refuse = err
}

func down(host string) resolver.Attempt {
	return resolver.Attempt{Source: host + "/x", Reason: resolver.ReasonUnreachable, Detail: "connection refused"}
}

func TestWhatAnEventSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		image, served, refused string
		attempts               []resolver.Attempt
		reason, kind, message  string
	}{
		"a mirror is down": {"quay.io/a", "quay.io/a", "", []resolver.Attempt{down("m.io")}, "MirrorFallback",
			"Warning", "Skipped: m.io/x: Unreachable (connection refused)"},
		"a mirror lacks an image": {
			"quay.io/a", "quay.io/a", "", []resolver.Attempt{{Source: "m.io/a", Reason: resolver.ReasonNotFound}},
			"MirrorFallback", "Normal", "NotFound",
		},
		"no registry has the image": {"quay.io/a:1", "", "", []resolver.Attempt{down("m.io"), down("quay.io")},
			"ImageUnavailable", "Warning", "Can't pull quay.io/a:1"},
		"the cluster blocks": {"quay.io/a:1", "", "the cluster blocks this registry", nil, "ImageRefused", "Warning",
			"Refused: the cluster blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *stage) {
				s.happen(c.image, c.served, c.refused, c.attempts...)
				all := s.said(5 * time.Second)
				if len(all) != 1 {
					t.Fatalf("%d events", len(all))
				}
				e := all[0]
				if e.Reason != c.reason || e.Type != c.kind || !strings.Contains(e.Message, c.message) ||
					len(e.Message) > 1024 {
					t.Errorf("%s %s %s", e.Type, e.Reason, e.Message)
				}
				if o := e.InvolvedObject; o.Kind != "Node" || o.Name != "win-a" || o.UID != "win-a" ||
					e.Namespace != "default" ||
					e.Source.Component != contract.ServiceDaemon || e.Source.Host != "win-a" ||
					!strings.HasPrefix(e.Name, "win-a.") {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

func TestADeadMirrorIsOneEventForAllImagesAndIsSaidAgainWhileItLasts(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *stage) {
		for minute := range 60 {
			for n := range 5 {
				s.happen(fmt.Sprintf("quay.io/%d", 5*(minute%6)+n), "quay.io/a", "", down("m.io"))
			}
			s.said(time.Minute)
		}
		all := s.said(0)
		if len(all) != 3 {
			t.Errorf("%d events within an hour", len(all))
		}
		if last := all[len(all)-1]; last.Count < 100 {
			t.Errorf("the event's count is %d", last.Count)
		}
		if now := s.said(5 * time.Hour); len(now) > len(all)+1 {
			t.Errorf("%d more events after the outage", len(now)-len(all))
		}
	})
}

func TestThousandsOfFailuresAreFewEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *stage) {
		for n := range 3000 {
			s.happen(fmt.Sprintf("quay.io/%d", n), "", "", down("quay.io"))
			s.said(time.Second)
		}
		if all := s.said(0); len(all) < 20 || len(all) > 31 {
			t.Errorf("%d events within 50 minutes", len(all))
		}
	})
}

func TestAClockThatWasSetBackKeepsNoEventBack(t *testing.T) {
	t.Parallel()
	fails := func(s *stage, registries int) {
		for n := range registries {
			s.happen(fmt.Sprintf("%d.io/a", n), "", "", down(fmt.Sprintf("%d.io", n)))
		}
	}
	for name, registries := range map[string]int{"about the same again": 1, "after many": 30} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *stage) {
				s.machine.SetClockOffset(48 * time.Hour)
				fails(s, registries)
				before := len(s.said(time.Minute))
				if before == 0 {
					t.Fatal("there is no event")
				}
				s.machine.SetClockOffset(0)
				s.said(3 * time.Hour) // until the node may create 20 events at the same time again
				fails(s, registries)
				if all := s.said(time.Minute); len(all) < min(2*registries, before+20) {
					t.Errorf("%d events, %d of them from before the clock was set back", len(all), before)
				}
			})
		})
	}
}

func TestWhatCanNotBeToldIsToldLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *stage) {
		s.failing(errors.New("away"))
		s.happen("quay.io/a:1", "", "", down("quay.io"))
		if all := s.said(time.Hour); len(all) > 0 {
			t.Fatal("the event was never created")
		}
		s.failing(nil)
		if all := s.said(2 * time.Minute); len(all) != 1 {
			t.Errorf("%d events", len(all))
		}
	})
}

// config/admission/event.yaml limits the length of an event, but the name of an image may be longer.
func TestAnEventIsAsShortAsItsPolicyDemands(t *testing.T) {
	t.Parallel()
	long := "quay.io/" + strings.Repeat("a", 250) + "/" + strings.Repeat("b", 250)
	for name, served := range map[string]string{"from a mirror": long, "from nowhere": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *stage) {
				s.happen(long, served, "", resolver.Attempt{Source: long, Reason: resolver.ReasonUnreachable,
					Detail: strings.Repeat("ü", 200)})
				all := s.said(5 * time.Second)
				if len(all) != 1 || len(all[0].Message) > 1024 || !utf8.ValidString(all[0].Message) ||
					!strings.Contains(all[0].Message, long) {
					t.Errorf("%+v", all)
				}
			})
		})
	}
}

func TestAnEventThatIsRefusedKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *stage) {
		tries := 0
		s.lock.Lock()
		s.policy = func(e corev1.Event) bool {
			refused := strings.Contains(e.Message, "quay.io/bad:1")
			if refused {
				tries++
			}
			return refused
		}
		s.lock.Unlock()
		s.happen("quay.io/other:1", "", "", down("quay.io"))
		s.said(time.Second)
		s.happen("quay.io/bad:1", "", "", down("quay.io")) // the newest event is sent first
		if all := s.said(time.Hour); len(all) != 1 || !strings.Contains(all[0].Message, "other") {
			t.Errorf("%+v", all)
		}
		s.lock.Lock()
		defer s.lock.Unlock()
		if tries != 1 {
			t.Errorf("the same event was tried %d times", tries)
		}
	})
}
