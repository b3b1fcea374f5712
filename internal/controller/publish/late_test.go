package publish

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// obstacles returns faults that make a pass fail. The key of each fault is the expected message. next is the name of
// the next revision.
func obstacles() map[string]struct {
	put  func(t *testing.T, w *world, next string)
	says string
} {
	refuse := func(name, why string) func(*testing.T, *world, string) {
		return func(_ *testing.T, w *world, next string) {
			w.refused[strings.ReplaceAll(name, "NEXT", next)] = apierrors.NewForbidden(corev1.Resource("secrets"), "x",
				errors.New(why))
		}
	}
	return map[string]struct {
		put  func(t *testing.T, w *world, next string)
		says string
	}{
		"a quota":              {refuse("NEXT", "exceeded quota"), "exceeded quota"},
		"a right that is gone": {refuse(contract.ServicesReaderRole, "no right"), "no right"},
		"a foreign finalizer": {func(t *testing.T, w *world, next string) {
			t.Helper()
			held := configMap(next, func(c *corev1.ConfigMap) { c.Finalizers = []string{"example.com/keep"} })
			if err := errors.Join(w.client.Create(t.Context(), held), w.client.Delete(t.Context(), held)); err != nil {
				t.Fatal(err)
			}
		}, "example.com/keep"},
		"a fact that can't be read": {func(_ *testing.T, w *world, _ string) {
			w.facts.answer(func(s *factsStub) { s.err = errors.New("etcdserver: no leader") })
		}, "no leader"},
	}
}

// pass reconciles once. It returns the result and the error.
func (w *world) pass(t *testing.T) (ctrl.Result, error) {
	t.Helper()
	return w.publisher.Reconcile(t.Context(), request())
}

// nextRevision returns the name of the revision that the current facts lead to.
func (w *world) nextRevision(t *testing.T) string {
	t.Helper()
	desired, err := w.publisher.render(t.Context(), &v1alpha1.WindowsMachineConfig{}, w.facts.facts)
	if err != nil {
		t.Fatal(err)
	}
	return desired.ConfigMapName()
}

func TestWhatKeepsARevisionFromBeingPublishedIsToldAfterAMinute(t *testing.T) {
	t.Parallel()
	for name, obstacle := range obstacles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.publish(t)
			first := w.current(t)
			changed := w.publisher.source.Changed()
			w.facts.answer(func(s *factsStub) { s.facts.KubeletCA = pem + pem })
			w.publisher.PayloadSource = PayloadSource{URLs: []string{"https://10.0.0.1:9183"}, CA: []byte(pem)}
			obstacle.put(t, w, w.nextRevision(t))
			if result, err := w.pass(t); err == nil {
				t.Errorf("reconciled again after %s", result.RequeueAfter)
			}
			if got := w.troubles(t); len(got) > 0 || len(changed) > 0 {
				t.Errorf("the trouble is reported before its waiting time is over: %v", got)
			}
			*w.clock = w.clock.Add(time.Minute)
			for range 2 {
				if again := w.publish(t).RequeueAfter; again != lateAfter {
					t.Errorf("reconciled again after %s", again)
				}
			}
			got := w.troubles(t)
			if len(got) != 1 || got[0].Reason != contract.ReasonRevisionNotPublished ||
				!strings.Contains(got[0].Detail, obstacle.says) {
				t.Fatalf("troubles are %v", got)
			}
			if w.current(t).Revision != first.Revision || len(w.publisher.source.Problems()) > 0 {
				t.Error("hosts can't join at the existing revision")
			}
			if len(changed) != 1 {
				t.Error("the source did not report the change")
			}
			<-changed
			w.remove(t)
			w.publish(t)
			if got = w.troubles(t); len(got) > 0 || w.current(t).Revision == first.Revision || len(changed) != 1 {
				t.Errorf("troubles are %v at revision %s", got, w.current(t).Revision)
			}
		})
	}
}

// remove removes all obstacles.
func (w *world) remove(t *testing.T) {
	t.Helper()
	clear(w.refused)
	w.facts.answer(func(s *factsStub) { s.err = nil })
	for _, c := range w.manifests(t) {
		if len(c.Finalizers) > 0 {
			c.Finalizers = nil
			if err := w.client.Update(t.Context(), &c); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWhatKeepsTheFirstRevisionFromBeingPublishedKeepsHostsFromJoining(t *testing.T) {
	t.Parallel()
	for name, obstacle := range obstacles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.publish(t) // the previous operator has published a salt
			w.publisher.source = &Source{}
			w.facts.answer(func(s *factsStub) { s.facts.KubeletCA = pem + pem })
			w.publisher.PayloadSource = PayloadSource{URLs: []string{"https://10.0.0.1:9183"}, CA: []byte(pem)}
			obstacle.put(t, w, w.nextRevision(t))
			_, _ = w.pass(t)
			if problems := w.publisher.source.Problems(); len(problems) > 0 {
				t.Errorf("the problem is reported before its waiting time is over: %v", problems)
			}
			*w.clock = w.clock.Add(time.Minute)
			w.publish(t)
			problems := w.publisher.source.Problems()
			if len(problems) != 1 || problems[0].Reason != contract.ReasonRevisionNotPublished ||
				!strings.Contains(problems[0].Detail, obstacle.says) {
				t.Errorf("problems are %v", problems)
			}
			if _, _, err := w.publisher.source.Current(t.Context()); !errors.Is(err, problems[0]) {
				t.Errorf("Current returns %v", err)
			}
			w.remove(t)
			w.publish(t)
			if problems = w.publisher.source.Problems(); len(problems) > 0 {
				t.Errorf("problems are %v", problems)
			}
			w.current(t)
		})
	}
}

// While a deleted revision can't be restored, the problems that prevent hosts from joining must be reported as well.
func TestWhatCantBeRestoredIsToldBesideTheProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	name := w.current(t).ConfigMapName()
	w.refused[name] = apierrors.NewForbidden(corev1.Resource("configmaps"), "x", errors.New("exceeded quota"))
	if err := w.client.Delete(t.Context(), configMap(name, nil)); err != nil {
		t.Fatal(err)
	}
	w.facts.answer(func(s *factsStub) { s.err = contract.NewProblem(contract.ReasonNetworkUnsupported, "x") })
	changed := w.publisher.source.Changed()
	reasons := func() (all []contract.Reason) {
		for _, p := range w.publisher.source.Problems() {
			all = append(all, p.Reason)
		}
		return all
	}
	if _, err := w.pass(t); err == nil || !slices.Equal(reasons(), []contract.Reason{contract.ReasonNetworkUnsupported}) {
		t.Errorf("problems are %v, %v", reasons(), err)
	}
	<-changed
	*w.clock = w.clock.Add(time.Minute)
	for range 2 {
		w.publish(t)
		if !slices.Equal(reasons(), []contract.Reason{contract.ReasonNetworkUnsupported,
			contract.ReasonRevisionNotPublished}) {
			t.Errorf("problems are %v", reasons())
		}
	}
	if len(changed) != 1 {
		t.Error("the source did not report the change")
	}
	<-changed
	w.publish(t)
	if len(changed) > 0 {
		t.Error("the source reports the same problem again")
	}
	w.facts.answer(func(s *factsStub) { s.err = nil })
	w.publish(t)
	if _, _, err := w.publisher.source.Current(t.Context()); err != nil {
		t.Errorf("a solved problem still prevents joins: %v", err)
	}
}

func TestARefusalThatSaysSomethingElseEachTimeIsToldOnceAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	name := w.current(t).ConfigMapName()
	if err := w.client.Delete(t.Context(), configMap(name, nil)); err != nil {
		t.Fatal(err)
	}
	changed := w.publisher.source.Changed()
	told := 0
	for n := range 10 { // one pass a minute
		w.refused[name] = apierrors.NewForbidden(corev1.Resource("configmaps"), "x", fmt.Errorf("%d are used", n))
		_, _ = w.pass(t) // fails until lateAfter is over
		if len(changed) > 0 {
			<-changed
			told++
		}
		*w.clock = w.clock.Add(lateAfter)
	}
	_, facts, err := w.publisher.source.Current(t.Context())
	if told < 5 || told > 10 {
		t.Errorf("the trouble is reported %d times", told)
	}
	if err != nil || len(facts.Troubles) != 1 || !strings.Contains(facts.Troubles[0].Detail, "9 are used") {
		t.Errorf("the troubles are %v, %v", facts.Troubles, err)
	}
}

// helpers returns the objects that are not part of a revision, each with a fault that makes writes of it fail.
func helpers() map[string]func(w *world) {
	refused := func(w *world, name string) {
		w.refused[name] = apierrors.NewForbidden(corev1.Resource("configmaps"), name, errors.New("a policy says no"))
	}
	return map[string]func(w *world){
		"where the payload is": func(w *world) {
			w.publisher.PayloadSource = PayloadSource{URLs: []string{"https://10.0.0.1:9183"}, CA: []byte(pem)}
			refused(w, contract.PayloadSourceConfigMap)
		},
		"the latest revision": func(w *world) { refused(w, contract.LatestSecret) },
		"the proxy's CAs": func(w *world) {
			w.facts.answer(func(s *factsStub) { s.facts.InjectsCA = true })
			refused(w, contract.TrustedCAConfigMap)
		},
	}
}

// Serving certificates of all nodes depend on the facts, and a new revision may contain new CAs. So if a helper object
// can't be written, this must not delay the facts or the revision.
func TestAHelperThatCantBeWrittenKeepsNeitherFactsNorRevisionsBack(t *testing.T) {
	t.Parallel()
	for name, refuse := range helpers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.publish(t) // the previous operator has published a salt
			w.facts.answer(func(s *factsStub) { s.facts.KubeletCA = pem + pem })
			next := w.nextRevision(t)
			w.publisher.source = &Source{}
			refuse(w)
			if result, err := w.pass(t); err == nil {
				t.Errorf("retried only after %s", result.RequeueAfter)
			}
			if facts, err := w.publisher.source.readFacts(); err != nil || facts.KubeletCA != pem+pem {
				t.Errorf("the facts are unknown: %v", err)
			}
			if w.current(t).ConfigMapName() != next || len(w.troubles(t)) > 0 {
				t.Errorf("revision %s with %v is published", w.current(t).ConfigMapName(), w.troubles(t))
			}
			*w.clock = w.clock.Add(time.Minute)
			if again := w.publish(t).RequeueAfter; again != lateAfter {
				t.Errorf("reconciled again after %s", again)
			}
			got := w.troubles(t)
			if len(got) != 1 || got[0].Reason != contract.ReasonRevisionNotPublished ||
				!strings.Contains(got[0].Detail, "a policy says no") || len(w.publisher.source.Problems()) > 0 {
				t.Errorf("troubles are %v, problems %v", got, w.publisher.source.Problems())
			}
			clear(w.refused)
			w.publish(t)
			if got = w.troubles(t); len(got) > 0 {
				t.Errorf("troubles are %v", got)
			}
		})
	}
}

func TestAProblemThatWasMendedIsOverWhicheverHelperCantBeWritten(t *testing.T) {
	t.Parallel()
	for name, refuse := range helpers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.publish(t)
			w.facts.answer(func(s *factsStub) { s.err = contract.NewProblem(contract.ReasonNetworkUnsupported, "x") })
			refuse(w)
			_, _ = w.pass(t)
			if problems := w.publisher.source.Problems(); len(problems) != 1 {
				t.Fatalf("problems are %v", problems)
			}
			w.facts.answer(func(s *factsStub) { s.err = nil })
			_, _ = w.pass(t)
			w.current(t)
		})
	}
}
