package publish

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

func (w *world) role(t *testing.T) rbacv1.Role {
	t.Helper()
	var role rbacv1.Role
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace,
		Name: contract.ServicesReaderRole}, &role); err != nil {
		t.Fatal(err)
	}
	return role
}

func TestTheManifestIsPublishedForTheDaemons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	desired := w.current(t)
	c, ok := w.manifests(t)["windows-services-"+desired.Revision]
	if !ok {
		t.Fatalf("revision %s has no ConfigMap", desired.Revision)
	}
	if c.Immutable == nil || !*c.Immutable {
		t.Error("the ConfigMap is not immutable")
	}
	manifest, err := contract.ManifestFromConfigMap(c.Data)
	if err != nil || manifest.Digest() != desired.Manifest.Digest() {
		t.Errorf("the ConfigMap decodes to %s, %v", manifest.Digest(), err)
	}
	rules := w.role(t).Rules
	if len(rules) != 4 || rules[0].Resources[0] != "configmaps" || rules[1].Resources[0] != "secrets" {
		t.Fatalf("the role has the rules %v", rules)
	}
	for i, verbs := range [][]string{{"list"}, {"list"}, {"list", "watch"}} {
		name := c.Name
		if i == 2 {
			name = contract.LatestSecret
		}
		if rule := rules[i]; len(rule.Resources) != 1 || !slices.Equal(rule.ResourceNames, []string{name}) ||
			!slices.Equal(rule.Verbs, verbs) {
			t.Errorf("the role has the rules %v", rules)
		}
	}
}

func TestASteadyStateWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	w.sweep(t)
	*w.writes = nil
	for range 3 {
		if again := w.publish(t).RequeueAfter; again != resync {
			t.Errorf("reconciled again after %s", again)
		}
		if again := w.sweep(t); again != 0 {
			t.Errorf("the sweep is repeated after %s", again)
		}
	}
	if len(*w.writes) > 0 {
		t.Errorf("writes: %v", *w.writes)
	}
}

func TestAnOperatorThatStartsAnewWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	*w.writes = nil
	again := &Source{}
	w.publisher.source = again
	w.publish(t)
	w.sweep(t)
	if len(*w.writes) > 0 {
		t.Errorf("writes: %v", *w.writes)
	}
}

func TestWhatIsThereIsRestored(t *testing.T) {
	t.Parallel()
	yes := true
	for name, test := range map[string]struct {
		spoil  func(t *testing.T, w *world, c *corev1.ConfigMap)
		writes []string
	}{
		"when it was deleted": {
			func(t *testing.T, w *world, c *corev1.ConfigMap) {
				t.Helper()
				if err := w.client.Delete(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}, []string{"create"},
		},
		"when it was replaced by a mutable one": {
			func(t *testing.T, w *world, c *corev1.ConfigMap) {
				t.Helper()
				swap(t, w, configMap(c.Name,
					func(n *corev1.ConfigMap) { n.Data = map[string]string{"services": "[]", "files": "[]"} }))
			}, []string{"delete", "create"},
		},
		"when it was replaced by an immutable one": {
			func(t *testing.T, w *world, c *corev1.ConfigMap) {
				t.Helper()
				swap(t, w, configMap(c.Name, func(n *corev1.ConfigMap) {
					n.Data, n.Immutable = map[string]string{"services": "[]", "files": "[]"}, &yes
				}))
			}, []string{"delete", "create"},
		},
		"when it was replaced by rubbish": {
			func(t *testing.T, w *world, c *corev1.ConfigMap) {
				t.Helper()
				swap(t, w, configMap(c.Name, func(n *corev1.ConfigMap) {
					n.Data, n.BinaryData, n.Immutable = c.Data, map[string][]byte{"x": {1}}, &yes
				}))
			}, []string{"delete", "create"},
		},
		"when only the mark of immutability is gone": {
			func(t *testing.T, w *world, c *corev1.ConfigMap) {
				t.Helper()
				swap(t, w, configMap(c.Name, func(n *corev1.ConfigMap) { n.Data, n.Labels = c.Data, c.Labels }))
			}, []string{"delete", "create"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.publish(t)
			desired := w.current(t)
			want := w.manifests(t)[desired.ConfigMapName()]
			test.spoil(t, w, want.DeepCopy())
			*w.writes = nil
			w.publish(t)
			got := w.manifests(t)[desired.ConfigMapName()]
			if !equality.Semantic.DeepEqual(got.Data, want.Data) || len(got.BinaryData) > 0 || got.Immutable == nil ||
				!*got.Immutable || !isOurs(&got) {
				t.Errorf("the object is not restored: %+v", got)
			}
			var verbs []string
			for _, write := range *w.writes {
				verbs = append(verbs, strings.Fields(write)[0])
			}
			if !slices.Equal(verbs, test.writes) {
				t.Errorf("writes: %v", *w.writes)
			}
		})
	}
}

func swap(t *testing.T, w *world, c *corev1.ConfigMap) {
	t.Helper()
	if err := errors.Join(w.client.Delete(t.Context(), configMap(c.Name, nil)),
		w.client.Create(t.Context(), c)); err != nil {
		t.Fatal(err)
	}
}

func TestARoleThatWasWidenedIsNarrowedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	role := w.role(t)
	want := role.DeepCopy().Rules
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
		Verbs: []string{"*"}})
	if err := w.client.Update(t.Context(), &role); err != nil {
		t.Fatal(err)
	}
	w.publish(t)
	if got := w.role(t).Rules; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the rules are %v", got)
	}
}

func TestAChangeMakesANewVersionAndKeepsTheOldOneReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}})
	w.publish(t)
	first := w.current(t)
	config := &v1alpha1.WindowsMachineConfig{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "cluster"}, config); err != nil {
		t.Fatal(err)
	}
	config.Spec.Logging.Debug = true
	if err := w.client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.publish(t)
	second := w.current(t)
	if first.Revision == second.Revision {
		t.Fatal("the revision is the same")
	}
	if got := w.role(t).Rules[0].ResourceNames; len(got) != 2 || !slices.Contains(got, first.ConfigMapName()) ||
		!slices.Contains(got, second.ConfigMapName()) {
		t.Errorf("the role names %v", got)
	}
}

func TestProblemsAreToldAndTheManifestStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	desired := w.current(t)
	w.facts.answer(func(s *factsStub) {
		s.err = errors.Join(contract.NewProblem(contract.ReasonNetworkUnsupported, "no hybrid overlay"),
			contract.NewProblem(contract.ReasonClusterFactsIncomplete, "no CA"))
	})
	if err := w.client.Delete(t.Context(), configMap(desired.ConfigMapName(), nil)); err != nil {
		t.Fatal(err)
	}
	if again := w.publish(t).RequeueAfter; again != recheck {
		t.Errorf("reconciled again after %s", again)
	}
	if problems := w.publisher.source.Problems(); len(problems) != 2 {
		t.Errorf("problems are %v", problems)
	}
	_, _, err := w.publisher.source.Current(t.Context())
	if problem, ok := contract.AsProblem(err); !ok || problem.Reason != contract.ReasonNetworkUnsupported {
		t.Errorf("Current returns %v", err)
	}
	if _, ok := w.manifests(t)[desired.ConfigMapName()]; !ok {
		t.Error("the manifest that nodes use was not restored")
	}
	w.facts.answer(func(s *factsStub) { s.err = nil })
	w.publish(t)
	if w.current(t).Revision != desired.Revision || len(w.publisher.source.Problems()) > 0 {
		t.Error("the problems are solved, but still reported")
	}
}

func TestAProblemOfRenderingIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.facts.answer(func(s *factsStub) { s.facts.KubernetesVersion = "v1.35.0" })
	w.publish(t)
	problems := w.publisher.source.Problems()
	if len(problems) != 1 || problems[0].Reason != contract.ReasonVersionUnsupported {
		t.Errorf("problems are %v", problems)
	}
	if _, _, published := w.publisher.source.Published(); published {
		t.Error("a revision is published")
	}
}

func TestAPassingFaultIsTriedAgainAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	w.facts.answer(func(s *factsStub) { s.err = errors.New("timeout") })
	if _, err := w.publisher.Reconcile(t.Context(), request()); err == nil {
		t.Error("the pass is not retried")
	}
	w.current(t)
}

// latest returns the Secret of the latest revision.
func (w *world) latest(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace,
		Name: contract.LatestSecret}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Daemons watch this Secret. The operator must update it in place, because another client's finalizer could block its
// deletion.
func TestTheLatestRevisionIsUpdatedInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	before := w.latest(t)
	before.Finalizers = []string{"example.com/keep"}
	if err := w.client.Update(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	w.facts.answer(func(s *factsStub) { s.facts.KubeletCA = pem + pem })
	*w.writes = nil
	w.publish(t)
	if !slices.Contains(*w.writes, "update Secret "+contract.LatestSecret) {
		t.Errorf("writes are %v", *w.writes)
	}
	if has, err := contract.ParseLatest(w.latest(t).Data); err != nil || has.Revision != w.current(t).Revision {
		t.Errorf("the latest revision is %s, %v", has.Revision, err)
	}
}

// troubles returns the problems that don't prevent hosts from joining.
func (w *world) troubles(t *testing.T) []*contract.Problem {
	t.Helper()
	_, facts, err := w.publisher.source.Current(t.Context())
	if err != nil {
		t.Fatalf("Current: %v", err)
	}
	return facts.Troubles
}

func TestTheSourceTellsOfChangesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	changed := w.publisher.source.Changed()
	told := func() bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	if _, _, err := w.publisher.source.Current(t.Context()); err == nil {
		t.Error("the source reports a change before the first revision")
	}
	w.publish(t)
	if !told() {
		t.Error("the source did not report the first revision")
	}
	w.publish(t)
	if told() {
		t.Error("the source reports a change although nothing changed")
	}
	w.facts.answer(func(s *factsStub) { s.facts.VXLANPort = 9898; s.facts.KubeletCA = pem + pem })
	w.publish(t)
	if !told() {
		t.Error("the source did not report the second revision")
	}
	w.facts.answer(func(s *factsStub) { s.err = contract.NewProblem(contract.ReasonNetworkUnsupported, "x") })
	w.publish(t)
	w.publish(t)
	if !told() || told() {
		t.Error("a problem must be reported once")
	}
}

func TestAManifestThatSomebodyDeletesSlowlyIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(t)
	c := configMap(w.current(t).ConfigMapName(), nil)
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
		t.Fatal(err)
	}
	c.Finalizers = []string{"example.com/slow"}
	if err := errors.Join(w.client.Update(t.Context(), c), w.client.Delete(t.Context(), c)); err != nil {
		t.Fatal(err)
	}
	w.publisher.source = &Source{} // a new operator
	if _, err := w.pass(t); err == nil || !strings.Contains(err.Error(), "example.com/slow") {
		t.Errorf("the pass returns %v", err)
	}
	if _, _, err := w.publisher.source.Current(t.Context()); err == nil {
		t.Error("daemons are told a revision that they can't read")
	}
}
