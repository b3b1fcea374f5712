package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

const (
	// limit is the time limit for operations on several nodes.
	limit = 4 * time.Minute
	// next is the version of the new programs.
	next       = "v1.36.4"
	kubeletExe = "kubelet.exe"
	daemonExe  = contract.ServiceDaemon + ".exe"
)

// nextOperator is the operator of the next release. The first test that needs it builds it.
var nextOperator struct {
	once sync.Once
	path string
	err  error
}

func newerOperator(t *testing.T) string {
	t.Helper()
	nextOperator.once.Do(func() {
		nextOperator.path, nextOperator.err = scene.BuildOperator(context.WithoutCancel(t.Context()), theShared.stage.Dir,
			"0.2.0")
	})
	if nextOperator.err != nil {
		t.Fatal(nextOperator.err)
	}
	return nextOperator.path
}

// rolling returns the options of a scene for upgrades, with a number of hosts and the number of nodes that may be
// unavailable at once.
func rolling(hosts, budget int, edits ...func(*v1alpha1.RolloutSpec)) scene.Options {
	o := options(hosts)
	unavailable := intstr.FromInt(budget)
	o.Scheduler = true
	spec := &o.Settings.Rollout
	spec.MaxUnavailable = &unavailable
	for _, edit := range edits {
		edit(spec)
	}
	return o
}

// trip is a stage whose nodes are upgraded while an observer watches them.
type trip struct {
	*stage
	*scene.Observer
	hosts       []*fleet.Host
	budget      int
	from        string
	connections map[string]int64
	payloads    int
	last        string
	// bad is the last version that failed on a node.
	bad string
}

// depart starts a scene, joins all hosts, and starts the observer.
func depart(t *testing.T, o scene.Options, loads ...scene.Workload) *trip {
	t.Helper()
	return own(t, o).depart(t, o, loads...)
}

// depart joins all hosts of a stage, and starts the observer.
func (s *stage) depart(t *testing.T, o scene.Options, loads ...scene.Workload) *trip {
	t.Helper()
	hosts := s.hosts(t, o.Hosts.Count)
	s.join(t, hosts...)
	return s.observed(t, o, hosts, loads...)
}

// observed starts the observer for joined nodes.
func (s *stage) observed(t *testing.T, o scene.Options, hosts []*fleet.Host, loads ...scene.Workload) *trip {
	t.Helper()
	v := &trip{stage: s, hosts: hosts, budget: o.Settings.Rollout.MaxUnavailable.IntValue(),
		connections: map[string]int64{}, last: s.PayloadDir()}
	for _, load := range loads {
		must(t, s.Run(t.Context(), soon, load))
	}
	v.from = s.instance(t, v.hosts[0]).Status.Revision
	for _, h := range v.hosts {
		v.connections[h.Name] = h.Server.Counters().Connections
	}
	var err error
	if v.Observer, err = s.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			v.tell(t)
		}
	})
	return v
}

// tell logs the state of all nodes, to help with a failure of the test.
func (v *trip) tell(t *testing.T) {
	t.Helper()
	for _, n := range v.Nodes() {
		t.Logf("%+v", n)
	}
	list := &v1alpha1.WindowsInstanceList{}
	if err := v.Client.List(context.WithoutCancel(t.Context()), list); err != nil {
		t.Log(err)
	}
	for _, i := range list.Items {
		t.Logf("%s: %s %s: %s; update %+v", i.Status.NodeName, i.Status.Phase, i.Status.Reason(),
			i.Status.Message(), i.Status.Upgrade())
	}
}

// payload creates a payload that differs from the previous one.
func (v *trip) payload(t *testing.T, change scene.Change) (dir string) {
	t.Helper()
	v.payloads++
	dir = filepath.Join(v.Dir, fmt.Sprintf("payload-%d", v.payloads))
	must(t, scene.ChangePayload(dir, v.last, change))
	return dir
}

// newBytes returns the size of the files of the payload at dir that the payload at from lacks, in bytes.
func newBytes(t *testing.T, from, dir string) (sum int64) {
	t.Helper()
	old, err := payload.OpenDir(from)
	must(t, err)
	after, err := payload.OpenDir(dir)
	must(t, err)
	for _, f := range after.Manifest().Files {
		if _, has := old.Blob(f.Digest); !has {
			sum += f.Size
		}
	}
	return sum
}

// rollout reads the desired revision and the state of its rollout.
func (s *stage) rollout(ctx context.Context) (desired string, status v1alpha1.RolloutStatus, err error) {
	config := &v1alpha1.WindowsMachineConfig{}
	err = s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
	return config.Status.DesiredRevision, config.Status.Rollout, err
}

// until waits for a condition, as long as an upgrade may take.
func (v *trip) until(t *testing.T, what string, holds func(ctx context.Context) (bool, string, error)) {
	t.Helper()
	if err := v.Await(t.Context(), limit, what, holds); err != nil {
		t.Fatal(errors.Join(err, errors.New(v.Operator.Tail(3000))))
	}
}

// some waits until the condition holds for some node.
func (v *trip) some(t *testing.T, what string, is func(n scene.Observed) bool) scene.Observed {
	t.Helper()
	var found scene.Observed
	v.until(t, "some node to be "+what, func(context.Context) (bool, string, error) {
		nodes := v.Nodes()
		i := slices.IndexFunc(nodes, is)
		if i >= 0 {
			found = nodes[i]
		}
		return i >= 0, fmt.Sprintf("%+v", nodes), nil
	})
	return found
}

// arrived waits until nodes have the new revision and are in service, and returns the revision. Without hosts, it waits
// for all nodes, and the operator must also report that the rollout is complete.
func (v *trip) arrived(t *testing.T, hosts ...*fleet.Host) (version string) {
	t.Helper()
	whole := len(hosts) == 0
	if whole {
		hosts = v.hosts
	}
	v.until(t, "nodes to be at the next revision", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := v.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		desired, status := config.Status.DesiredRevision, config.Status.Rollout
		version = desired
		where := fmt.Sprintf("%s %s: %s", status.Phase, desired, status.Message)
		for _, n := range v.Nodes() {
			behind := n.Version != desired || !n.Serves
			if behind && slices.ContainsFunc(hosts, func(h *fleet.Host) bool { return h.Name == n.Node }) {
				return false, where + "; behind: " + n.Node, err
			}
		}
		return desired != v.from && (!whole || scene.RolloutIdle(config, len(v.hosts))), where, err
	})
	return version
}

// well checks all observations until now: the rollout budget was kept, and no host was contacted over SSH.
func (v *trip) well(t *testing.T) {
	t.Helper()
	if most := v.Most(); len(most) > v.budget {
		t.Errorf("%v were unavailable at once, but only %d may be", most, v.budget)
	}
	for _, what := range v.Wrong() {
		t.Error(what)
	}
	for _, h := range v.hosts {
		if n := h.Server.Counters().Connections - v.connections[h.Name]; n > 0 {
			t.Errorf("%s: %d SSH connections", h.Name, n)
		}
	}
}

// inService checks that nodes are in the same state as before the first disruption.
func (v *trip) inService(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	for _, h := range hosts {
		node := v.node(t, h)
		if node.Spec.Unschedulable || !policy.IsReady(node) {
			t.Errorf("%s is not in service", h.Name)
		}
		if _, marked := node.Labels[contract.UpgradingLabel]; marked {
			t.Errorf("%s still has the label of a node that is being upgraded", h.Name)
		}
		if _, marked := node.Annotations[contract.CordonedAnnotation]; marked {
			t.Errorf("%s still has the annotation that the operator cordoned it", h.Name)
		}
		if i := v.instance(t, h); i.Status.HasSlot() {
			t.Errorf("%s still has a slot: %+v", h.Name, i.Status.Slot)
		}
	}
}

func TestA28_ANewOperatorVersionReachesEveryNodeWhateverHappensToTheOperator(t *testing.T) {
	t.Parallel()
	web := scene.Workload{Name: "web", Replicas: 6, Grace: 2 * time.Second, MaxUnavailable: 2}
	v := depart(t, rolling(4, 1), web)
	dir := v.payload(t, scene.Change{Versions: map[string]string{kubeletExe: next, daemonExe: next}})
	must(t, v.Upgrade(t.Context(), newerOperator(t), dir))
	for _, moment := range []struct {
		what string
		is   func(n scene.Observed) bool
	}{
		{"told what to fetch", func(n scene.Observed) bool { return n.Annotations[contract.StageAnnotation] != "" }},
		{"cordoned", func(n scene.Observed) bool { return n.Cordoned }},
		{"told to switch", func(n scene.Observed) bool { return n.Desired != v.from }},
		{"at its new version", func(n scene.Observed) bool {
			return n.Version != v.from && n.Version != "" &&
				n.Order > 0
		}},
		{"back, and the next one cordoned", func(n scene.Observed) bool { return n.Cordoned && n.Order > 1 }},
	} {
		v.some(t, moment.what, moment.is)
		must(t, v.Operator.Kill())
		must(t, v.Operator.Start(t.Context()))
	}
	version := v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
	if !strings.HasPrefix(version, "0.2.0-") {
		t.Errorf("the nodes are at %s", version)
	}
	for _, n := range v.Nodes() {
		if n.Absences != 1 {
			t.Errorf("%s was out of service %d times, want once", n.Node, n.Absences)
		}
	}
	if v.Ended() == 0 {
		t.Error("no pod was evicted, so this test can't show that pods survive")
	}
}

func TestA28_ABlockingDisruptionBudgetDelaysItsNodeOnly(t *testing.T) {
	t.Parallel()
	v := depart(
		t, rolling(
			3, 1, func(r *v1alpha1.RolloutSpec) { r.DrainTimeout = &metav1.Duration{Duration: 3 * time.Second} }))
	blocked := v.hosts[0]
	pod := v.pod(t, blocked, 1)
	labelled := pod.DeepCopy()
	labelled.Labels = map[string]string{"app": "precious"}
	must(t, v.Client.Patch(t.Context(), labelled, client.MergeFrom(pod)))
	none := intstr.FromInt(0)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "precious"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none,
			Selector: &metav1.LabelSelector{MatchLabels: labelled.Labels}},
	}
	must(t, v.Client.Create(t.Context(), budget))
	must(t, v.Upgrade(t.Context(), "", v.payload(t,
		scene.Change{Versions: map[string]string{kubeletExe: next, "containerd.exe": next}})))
	v.arrived(t, v.hosts[1:]...)
	v.until(t, "the blocked node to be reported, and to serve", func(ctx context.Context) (bool, string, error) {
		i, err := v.Instance(ctx, blocked)
		if err != nil {
			return false, "", err
		}
		node := &corev1.Node{}
		if err = v.Client.Get(ctx, client.ObjectKey{Name: blocked.Name}, node); err != nil {
			return false, "", err
		}
		serves := !node.Spec.Unschedulable && !i.Status.HasSlot()
		return serves && i.Status.Reason() == string(contract.ReasonDrainBlocked),
			fmt.Sprintf("%s: %s, serves: %v", i.Status.Reason(), i.Status.Message(), serves), nil
	})
	if i := v.instance(t, blocked); i.Status.Revision != v.from || !strings.Contains(i.Status.Message(), pod.Name) {
		t.Errorf("%s is at %s: %s", blocked.Name, i.Status.Revision, i.Status.Message())
	}
	v.well(t)
	v.inService(t, v.hosts...)
	again := &corev1.Pod{}
	if err := v.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), again); err != nil || again.UID != pod.UID ||
		again.DeletionTimestamp != nil {
		t.Errorf("the pod was evicted against its disruption budget: %v", err)
	}
}

func TestA29_OnlyWhatChangedIsSentWhileTheNodeServes(t *testing.T) {
	t.Parallel()
	v := depart(t, rolling(3, 3))
	v.sendsOnlyWhatChanged(t)
}

// sendsOnlyWhatChanged updates kubelet on all nodes. The disk of one host is full for a while. Every node must download
// only the files that changed.
func (v *trip) sendsOnlyWhatChanged(t *testing.T) {
	t.Helper()
	full := v.hosts[len(v.hosts)-1]
	facts, err := full.Machine.Host().System.Facts(t.Context())
	must(t, err)
	full.Machine.SetDiskFree(1 << 20)
	untouched := []string{contract.ServiceExporter, contract.ServiceCSIProxy, contract.ServiceContainerd}
	before, absences := map[string]uint32{}, v.absencesOf(full)
	for _, h := range v.hosts {
		for _, name := range untouched {
			before[h.Name+name] = process(t, h, name)
		}
	}
	dir := v.payload(t, scene.Change{Versions: map[string]string{kubeletExe: next}})
	must(t, v.Upgrade(t.Context(), "", dir))
	v.arrived(t, v.hosts[:len(v.hosts)-1]...)
	v.until(t, "the full disk to be reported", func(ctx context.Context) (bool, string, error) {
		i, err := v.Instance(ctx, full)
		return err == nil && i.Status.Reason() == string(contract.ReasonStaging) &&
			strings.Contains(i.Status.Message(), string(contract.ReasonDiskFull)), i.Status.Message(), err
	})
	if v.absencesOf(full) > absences {
		t.Error("the operator took a node out of service although the node can't download the payload")
	}
	full.Machine.SetDiskFree(facts.DiskFree)
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
	for _, n := range v.Nodes() {
		if want := newBytes(t, v.last, dir); n.StagedBytes != want {
			t.Errorf("%s downloaded %d bytes, but the new files have %d bytes", n.Node, n.StagedBytes, want)
		}
	}
	for _, h := range v.hosts {
		if node := v.node(t, h); node.Status.NodeInfo.KubeletVersion != next {
			t.Errorf("%s has kubelet %s", h.Name, node.Status.NodeInfo.KubeletVersion)
		}
		for _, name := range untouched {
			if now := process(t, h, name); now != before[h.Name+name] {
				t.Errorf("%s: %s was restarted although it did not change", h.Name, name)
			}
		}
	}
	v.last, v.from = dir, v.instance(t, full).Status.Revision
}

func TestA29_AVersionThatFailsIsRolledBackReportedAndHalted(t *testing.T) {
	t.Parallel()
	v := depart(t, rolling(3, 1,
		func(r *v1alpha1.RolloutSpec) { r.VerifyTimeout = &metav1.Duration{Duration: time.Minute} }))
	for _, bad := range []struct {
		name   string
		change scene.Change
	}{
		{"kubelet ends at once", scene.Change{Versions: map[string]string{kubeletExe: "v1.36.5"},
			Failing: []string{kubeletExe}}},
		{"kubelet hangs", scene.Change{Versions: map[string]string{kubeletExe: "v1.36.6"},
			Stuck: []string{kubeletExe}}},
	} {
		if !t.Run(bad.name, func(t *testing.T) { v.halts(t, bad.change) }) {
			return
		}
	}
	if t.Run("resumed by annotation, it goes on", v.resumes) {
		t.Run("a newer revision is not held up", v.passes)
	}
}

// passes upgrades the nodes to a working version after the failed ones.
func (v *trip) passes(t *testing.T) {
	t.Helper()
	must(t, v.Upgrade(t.Context(), "",
		v.payload(t, scene.Change{Versions: map[string]string{kubeletExe: "v1.36.7"}})))
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
}

// halts publishes a version that fails. The rollout must halt after one node has failed, and this node must be rolled
// back.
func (v *trip) halts(t *testing.T, change scene.Change) {
	t.Helper()
	defer v.failsSoon(t)()
	absences := v.absences()
	must(t, v.Upgrade(t.Context(), "", v.payload(t, change)))
	var failed v1alpha1.RolloutFailure
	v.until(t, "the rollout to be halted, and all nodes to serve", func(ctx context.Context) (bool, string, error) {
		desired, status, err := v.rollout(ctx)
		halted := status.Phase == v1alpha1.RolloutHalted && len(status.Failures) > 0 &&
			status.Failures[0].Revision == desired && desired != v.bad
		if halted {
			failed = status.Failures[0]
		}
		return halted && v.allServe(v.from),
			fmt.Sprintf("%s %s: %s %+v", status.Phase, desired, status.Message, status.Failures), err
	})
	v.bad = failed.Revision
	if failed.Code != "W706" || failed.Message == "" {
		t.Errorf("the failure is reported as %+v", failed)
	}
	if n := v.absences() - absences; n != 1 {
		t.Errorf("%d nodes were taken out of service, want 1", n)
	}
	i := slices.IndexFunc(v.hosts, func(h *fleet.Host) bool { return h.Name == failed.Node })
	if i < 0 {
		t.Fatalf("the failed node %q is not a host of this test", failed.Node)
	}
	v.until(t, "the instance of the failed node to report the failure", func(ctx context.Context) (bool, string,
		error) {
		instance, err := v.Instance(ctx, v.hosts[i])
		if err != nil {
			return false, "", err
		}
		status := instance.Status
		said := status.FailedRevision == failed.Revision &&
			status.Reason() == string(contract.ReasonUpdateFailed)
		return said && status.Revision == v.from,
			fmt.Sprintf("%+v at %q: %s", status.FailedRevision, status.Revision, status.Reason()), nil
	})
	v.well(t)
	v.inService(t, v.hosts...)
}

// failsSoon shortens the verify timeout to 15 s, so that a bad version fails soon. The returned function restores the
// minute that healthy nodes need.
func (v *trip) failsSoon(t *testing.T) (back func()) {
	t.Helper()
	v.setVerifyTimeout(t, 15*time.Second)
	return func() { v.setVerifyTimeout(t, time.Minute) }
}

// setVerifyTimeout sets the time limit from the switch to a revision until its verification.
func (s *stage) setVerifyTimeout(t *testing.T, limit time.Duration) {
	t.Helper()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	must(t, s.Client.Patch(context.WithoutCancel(t.Context()), config,
		merge(fmt.Sprintf(`{"spec":{"rollout":{"verifyTimeout":%q}}}`, limit))))
}

// resumes allows the failed version to continue. It must then fail on another node.
func (v *trip) resumes(t *testing.T) {
	defer v.failsSoon(t)()
	desired, before, err := v.rollout(t.Context())
	must(t, err)
	v.annotate(t, desired)
	v.until(t, "another node to fail", func(ctx context.Context) (bool, string, error) {
		_, status, err := v.rollout(ctx)
		return len(status.Failures) > len(before.Failures), fmt.Sprintf("%s: %s", status.Phase, status.Message), err
	})
	v.annotate(t, "")
	v.until(t, "all nodes to serve", func(ctx context.Context) (bool, string, error) {
		_, status, err := v.rollout(ctx)
		return v.allServe(v.from) && status.Phase == v1alpha1.RolloutHalted,
			fmt.Sprintf("%s: %s", status.Phase, status.Message), err
	})
	v.well(t)
}

// annotate sets the annotation that resumes the rollout of a revision. An empty version removes the annotation.
func (v *trip) annotate(t *testing.T, version string) {
	t.Helper()
	value := "null"
	if version != "" {
		value = `"` + version + `"`
	}
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	must(t, v.Client.Patch(t.Context(), config,
		merge(`{"metadata":{"annotations":{"`+contract.ResumeRolloutAnnotation+`":`+value+`}}}`)))
}

// process returns the process id of a service.
func process(t *testing.T, h *fleet.Host, service string) uint32 {
	t.Helper()
	found, err := h.Machine.Host().Services.Get(t.Context(), service)
	must(t, err)
	return found.PID
}

func (v *trip) allServe(version string) bool {
	return !slices.ContainsFunc(v.Nodes(),
		func(n scene.Observed) bool { return !n.Serves || n.Version != version || n.Desired != version })
}

func (v *trip) absencesOf(h *fleet.Host) int {
	for _, n := range v.Nodes() {
		if n.Node == h.Name {
			return n.Absences
		}
	}
	return 0
}

func (v *trip) absences() (sum int) {
	for _, n := range v.Nodes() {
		sum += n.Absences
	}
	return sum
}

func TestA31_AKubernetesMinorVersionIsSkippedWithoutUninstalling(t *testing.T) {
	t.Parallel()
	o := rolling(2, 1)
	base, old := filepath.Join(t.TempDir(), "base"), filepath.Join(t.TempDir(), "old")
	must(t, scene.WritePayload(base))
	must(t, scene.ChangePayload(old, base,
		scene.Change{Versions: map[string]string{kubeletExe: "v1.34.8", "kube-proxy.exe": "v1.34.8"}}))
	o.Payload = old
	v := depart(t, o)
	nodes, running := map[string]*corev1.Node{}, map[string]uint32{}
	for _, h := range v.hosts {
		nodes[h.Name] = v.node(t, h)
		running[h.Name] = process(t, h, contract.ServiceContainerd)
		if now := nodes[h.Name].Status.NodeInfo.KubeletVersion; now != "v1.34.8" {
			t.Fatalf("%s starts with kubelet %s", h.Name, now)
		}
	}
	must(t, v.Upgrade(t.Context(), newerOperator(t), base))
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
	for _, h := range v.hosts {
		node := v.node(t, h)
		if node.UID != nodes[h.Name].UID || node.Status.NodeInfo.KubeletVersion != "v1.36.3" ||
			node.Status.NodeInfo.BootID != nodes[h.Name].Status.NodeInfo.BootID {
			t.Errorf("%s: kubelet %s, boot %s", h.Name, node.Status.NodeInfo.KubeletVersion,
				node.Status.NodeInfo.BootID)
		}
		if process(t, h, contract.ServiceContainerd) != running[h.Name] {
			t.Errorf("%s: containerd was restarted although it did not change", h.Name)
		}
	}
}

func TestA29_ANodeWhoseNewDaemonDoesNotComeUpGoesBackByItself(t *testing.T) {
	t.Parallel()
	v := depart(t, rolling(3, 2))
	programs := map[string]string{}
	for _, h := range v.hosts {
		programs[h.Name] = daemonOn(t, h)
	}
	change := scene.Change{Versions: map[string]string{kubeletExe: next, daemonExe: next}, Failing: []string{daemonExe}}
	must(t, v.Upgrade(t.Context(), "", v.payload(t, change)))
	var failures []v1alpha1.RolloutFailure
	v.until(t, "the rollout to be halted, and all nodes to serve", func(ctx context.Context) (bool, string, error) {
		desired, status, err := v.rollout(ctx)
		failures = status.Failures
		halted := status.Phase == v1alpha1.RolloutHalted && len(failures) > 0 && failures[0].Revision == desired
		holdsPlace := slices.ContainsFunc(v.hosts,
			func(h *fleet.Host) bool { return v.instance(t, h).Status.HasSlot() })
		return halted && desired != v.from && v.allServe(v.from) && !holdsPlace,
			fmt.Sprintf("%s %s: %s %+v", status.Phase, desired, status.Message, failures), err
	})
	if went := v.absences(); went > v.budget || went < len(failures) {
		t.Errorf("%d nodes were taken out of service, and %d are reported as failed", went, len(failures))
	}
	for _, failed := range failures {
		if failed.Code != "W706" || !strings.Contains(failed.Message, "went back by itself") ||
			!strings.Contains(failed.Message, "new daemon") {
			t.Errorf("the failure is reported as %+v", failed)
		}
	}
	v.well(t)
	v.inService(t, v.hosts...)
	for _, h := range v.hosts {
		if daemonOn(t, h) != programs[h.Name] {
			t.Errorf("%s was not rolled back to its old daemon", h.Name)
		}
		if was, err := state.Read(h.Machine.Host().Files); err != nil || was.Update != nil {
			t.Errorf("%s still has a new daemon program on trial, %v", h.Name, err)
		}
	}
	must(t, v.Upgrade(t.Context(), "", v.payload(t,
		scene.Change{Versions: map[string]string{kubeletExe: next, daemonExe: "v1.36.5"}})))
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
}

// daemonOn returns the digest of the daemon's program on a host.
func daemonOn(t *testing.T, h *fleet.Host) string {
	t.Helper()
	digest, err := apply.DigestOf(t.Context(), h.Machine.Host().Files, contract.PathDaemon)
	must(t, err)
	return digest
}
