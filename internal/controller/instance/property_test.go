package instance

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/instance/disrupt"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/clock"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// schedules is how many schedules are run. steps is the length of each schedule.
const (
	schedules = 200
	steps     = 70
)

// twoBudgets is a part of the message with which the API server refuses an eviction if two disruption budgets match a
// pod.
const twoBudgets = "more than one PodDisruptionBudget"

// errKilled is the error of a write during which the operator is killed.
var errKilled = errors.New("the operator is killed")

// machineOf is the real state of one host.
type machineOf struct {
	pods int
	// blocked means that the host's pods can't be evicted. The reason is a disruption budget, or a different one if
	// refused is set. bad means that the host becomes healthy only at the first revision. down means that the host is
	// switched off.
	blocked, refused, bad, down bool
	// toward is the revision that the daemon is applying.
	toward string
	boot   int
	// answers means that the host can be reached over SSH.
	answers bool
	// lost means that the pods of the host's node are lost. It is reset when the node is in service again.
	lost bool
}

// tally counts what happened. If too little happened in a schedule, its success proves nothing.
type tally struct {
	// disrupted counts slots that were assigned to nodes in service. peak is the highest number of slots at the same
	// time. both counts upgrades that continued with a reboot in the same slot.
	disrupted, peak, wentBack, reboots, both, removed, blips int
	// concurrent counts decisions of a stale operator during a decision of the current operator.
	concurrent int
	// shut counts reconciles in which a node in service had to wait because no window was open. none counts reconciles
	// in which it had to wait because the budget was zero.
	shut, none int
	// refused counts evictions that were refused for a different reason than a disruption budget. stuck counts drains
	// that failed because of such evictions.
	refused, stuck int
	// deleted counts how often the settings were deleted. set counts how often the operator's clock was set. again
	// counts joins over SSH of hosts that had joined before.
	deleted, set, again int
}

// add adds the numbers of another tally.
func (a *tally) add(b tally) {
	a.disrupted, a.peak, a.wentBack = a.disrupted+b.disrupted, max(a.peak, b.peak), a.wentBack+b.wentBack
	a.reboots, a.both, a.removed, a.blips = a.reboots+b.reboots, a.both+b.both, a.removed+b.removed, a.blips+b.blips
	a.concurrent, a.shut, a.none = a.concurrent+b.concurrent, a.shut+b.shut, a.none+b.none
	a.refused, a.stuck = a.refused+b.refused, a.stuck+b.stuck
	a.deleted, a.set, a.again = a.deleted+b.deleted, a.set+b.set, a.again+b.again
}

// fleet is a cluster in which any event may happen at any time, and an observer that checks the operator's writes.
type fleet struct {
	t    *testing.T
	r    *rand.Rand
	rig  *rig
	p    *plane
	host map[string]*machineOf
	// killed is set if the operator was killed during a write.
	killed bool
	// budget and isClosed are the current settings. The observer needs no earlier ones: slots are assigned after a live
	// read, and the settings don't change during this read.
	budget   intstr.IntOrString
	isClosed bool
	// before is a stale operator, which doesn't know yet that a new operator has taken over.
	before    *Reconciler
	resumed   string
	threshold int
	journal   []string
	tally
	// overlapped means that a stale operator made a decision during this reconcile. The new operator may not know about
	// a failure that the stale operator wrote.
	overlapped    bool
	calm, isStale bool
	// real is the time of the cluster and of the observer. The operator's clock may differ. ahead means that the last
	// change set the operator's clock forward.
	real  time.Time
	ahead bool
	// kinds is the number of kinds of events. Schedules that were recorded with fewer kinds set a lower number.
	kinds int
}

func (f *fleet) note(format string, args ...any) {
	f.journal = append(f.journal, fmt.Sprintf("%s ", f.rig.clock.Format("15:04:05"))+fmt.Sprintf(format, args...))
}

func (f *fleet) violated(format string, args ...any) {
	f.t.Errorf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(f.journal[max(0, len(f.journal)-25):], "\n"))
}

// serves reports whether a node is in service, as the observer sees it: its pods run and keep running. It is written
// independently of the code under test.
func (f *fleet) serves(name string) bool {
	n, i := f.p.now.nodes[name], f.p.now.instances[name]
	if n == nil || i == nil {
		return false
	}
	a := n.Annotations
	return n.Status.Conditions[0].Status == corev1.ConditionTrue && !n.Spec.Unschedulable &&
		!i.Status.HasSlot() &&
		a[contract.RevisionAnnotation] == a[contract.DesiredRevisionAnnotation]
}

// isOut reports whether a node has been NotReady for so long that its pods count as lost.
func (f *fleet) isOut(name string) bool {
	ready := f.p.now.nodes[name].Status.Conditions[0]
	after := 5 * time.Minute
	if f.ahead { // by the operator's clock, more time has passed
		after = policy.Witnessed
	}
	return ready.Status != corev1.ConditionTrue && f.real.Sub(ready.LastTransitionTime.Time) >= after
}

// isBegun reports whether a node has a cordon of the operator.
func (f *fleet) isBegun(name string) bool {
	n := f.p.now.nodes[name]
	return n.Spec.Unschedulable && n.Annotations[contract.CordonedAnnotation] == "true"
}

// limit returns how many nodes may be out of service.
func (f *fleet) limit() int {
	if f.budget.Type == intstr.Int {
		return max(0, int(f.budget.IntVal))
	}
	var percent float64
	if n, err := fmt.Sscanf(f.budget.StrVal, "%f%%", &percent); err != nil || n != 1 || percent > 100 {
		return 0
	}
	return int(math.Ceil(percent / 100 * float64(len(f.host))))
}

// isDue reports whether a node is in service and has a reason to be disrupted.
func (f *fleet) isDue(name string) bool {
	i := f.p.now.instances[name]
	return f.serves(name) && i.DeletionTimestamp.IsZero() && !i.Spec.Paused &&
		(i.Status.Upgrade() != nil && i.Status.Upgrade().Step == v1alpha1.StepWaiting || i.Status.Reboot() != nil)
}

// watch lets the observer check each write of the operator.
func (f *fleet) watch(old, wanted client.Object) error {
	switch was := old.(type) {
	case *v1alpha1.WindowsInstance:
		now, ok := wanted.(*v1alpha1.WindowsInstance)
		if ok && !was.Status.HasSlot() && now.Status.HasSlot() {
			f.claims(now)
		}
		if ok && was.Status.HasSlot() && !now.Status.HasSlot() {
			f.givesBack(was, now)
		}
		if ok && was.Status.Upgrade() != nil && was.Status.HasSlot() && now.Status.HasSlot() &&
			now.Status.Reboot() != nil {
			f.goesOn(was, now)
		}
		if ok && was.Status.FailedRevision == "" && now.Status.FailedRevision != "" {
			f.wentBack++
		}
		if ok && was.Status.Reboot().Begun() && now.Status.Reboot() == nil {
			f.reboots++
		}
		if ok && was.Status.Reason() != now.Status.Reason() && now.Status.Reason() == string(contract.ReasonDrainBlocked) &&
			strings.Contains(now.Status.Message(), twoBudgets) {
			f.stuck++
		}
	case *corev1.Node:
		now, ok := wanted.(*corev1.Node)
		if !ok {
			break
		}
		instance := f.p.now.instances[now.Name]
		if instance == nil {
			break
		}
		slot, to := instance.Status.HasSlot(), now.Annotations[contract.DesiredRevisionAnnotation]
		f.tells(was, now, &instance.Status)
		for what, is := range map[string]bool{
			"cordoned": !was.Spec.Unschedulable && now.Spec.Unschedulable,
			// A daemon that was stopped does nothing. So before it is started, its previous revision may be requested
			// from it.
			"told another revision": to != was.Annotations[contract.DesiredRevisionAnnotation] &&
				(!journey.HasStoppedDaemon(&instance.Status) || to != instance.Status.HeldRevision),
			"allowed to reboot": now.Annotations[contract.RebootApprovedAnnotation] != "" &&
				was.Annotations[contract.RebootApprovedAnnotation] == "",
			"uncordoned for a stranger": was.Spec.Unschedulable && !now.Spec.Unschedulable &&
				was.Annotations[contract.CordonedAnnotation] == "",
		} {
			if is && !slot && !f.rejoins(now.Name) || is && what == "uncordoned for a stranger" {
				f.note("was %+v, is %+v, status %+v", was.Annotations, now.Annotations,
					f.p.now.instances[now.Name].Status)
				f.violated("%s is %s without a slot in the budget, or against an administrator", now.Name, what)
			}
		}
		if was.Annotations[contract.DesiredRevisionAnnotation] != now.Annotations[contract.DesiredRevisionAnnotation] {
			f.note("%s is to have %s", now.Name, now.Annotations[contract.DesiredRevisionAnnotation])
		}
	}
	if !f.calm && f.r.IntN(60) == 0 { // killed before the write
		f.killed = true
		return errKilled
	}
	return nil
}

func (f *fleet) noteLost(name string) {
	f.host[name].lost = f.host[name].lost || f.p.now.nodes[name] == nil || f.isOut(name)
}

// rejoins reports whether a host whose pods were lost is joined again. In this test, no revisions are published, so the
// host joins at the desired revision.
func (f *fleet) rejoins(name string) bool {
	return f.host[name].lost && journey.HasStoppedDaemon(&f.p.now.instances[name].Status)
}

// claims lets the observer check that a node may get its slot.
func (f *fleet) claims(i *v1alpha1.WindowsInstance) {
	name := i.Status.NodeName
	f.note("%s has its turn (%s)", name, i.Purpose())
	if list := f.p.now.places; list == nil || !strings.Contains(list.Data["places"], `"`+string(i.UID)+`"`) {
		f.violated("%s takes a place that is not in the list", name)
	}
	hands := 1
	lost := 0
	for other := range f.host {
		one, node := f.p.now.instances[other], f.p.now.nodes[other]
		if one == nil {
			continue // the instance was just removed, so it doesn't count
		}
		if one.Status.HasSlot() {
			hands++
		}
		missed := one.DeletionTimestamp.IsZero() || one.Status.HasSlot() ||
			node == nil || node.Status.Conditions[0].Status == corev1.ConditionTrue && one.Status.Phase != v1alpha1.PhaseRemoving
		if other != name && missed && !f.serves(other) {
			lost++
		}
	}
	f.peak = max(f.peak, hands)
	update := i.Status.Upgrade()
	if update != nil && i.Purpose() == v1alpha1.ActivityUpgrade &&
		!i.Status.IsRequested() && update.Step != v1alpha1.StepRollingBack {
		f.halts(name, update.Revision)
	}
	removal := i.Purpose() == v1alpha1.ActivityRemove
	isTold := i.Status.IsRequested() // the node is between two revisions
	if f.isClosed && !removal && !isTold && !f.isBegun(name) {
		f.violated("%s is disrupted though no window is open", name)
	}
	node := f.p.now.nodes[name]
	switch behind := node.Annotations[contract.RevisionAnnotation] != node.Annotations[contract.DesiredRevisionAnnotation]; {
	case f.isBegun(name), f.isOut(name):
		if limit := f.limit(); hands > limit {
			f.violated("%s is worked on though %d others are, and %d may", name, hands-1, limit)
		}
		return // the node's pods are already lost or evicted
	case behind && node.Status.Conditions[0].Status == corev1.ConditionTrue:
		return // the node's pods keep running
	}
	f.disrupted++
	if limit := f.limit(); lost >= limit {
		f.note("%+v %+v", f.p.now.nodes[name], f.p.now.instances[name].Status)
		f.violated("%s is disrupted although %d of %d serve nobody, and %d may", name, lost, len(f.host), limit)
	}
}

// givesBack lets the observer check that a slot may be released: the node must be in service or paused, or the operator
// must have failed to reach the host. If an operator could not save such a failure, it saves the failure together with
// the next step. In this case, only the phase before shows the failure.
func (f *fleet) givesBack(was, now *v1alpha1.WindowsInstance) {
	phase := now.Status.Phase
	looked := phase == v1alpha1.PhaseReady || phase == v1alpha1.PhaseUpdating || phase == v1alpha1.PhaseRebooting
	looked = looked && was.Status.Phase != v1alpha1.PhaseConnecting
	if node := f.p.now.nodes[now.Status.NodeName]; looked && node != nil && !now.Spec.Paused &&
		node.Annotations[contract.CordonedAnnotation] != "" {
		f.note("%+v", now.Status)
		f.violated("the place of %s is erased", now.Name)
	}
}

// tells lets the observer check a request to leave the previous revision: the node's pods must be evicted or lost.
func (f *fleet) tells(was, now *corev1.Node, status *v1alpha1.WindowsInstanceStatus) {
	from, to := was.Annotations[contract.DesiredRevisionAnnotation], now.Annotations[contract.DesiredRevisionAnnotation]
	if update := status.Upgrade(); update != nil && from == status.HeldRevision && to == update.Revision && from != to &&
		f.host[now.Name].pods > 0 && !f.isOut(now.Name) {
		f.violated("%s is switched with its pods", now.Name)
	}
}

// goesOn lets the observer check an update that continues with a reboot in the same slot. The update must be verified
// and complete, and the host must not have been rebooted too often.
func (f *fleet) goesOn(was, now *v1alpha1.WindowsInstance) {
	f.both++
	n := f.p.now.nodes[now.Status.NodeName]
	verifies := was.Status.Upgrade().Step == v1alpha1.StepVerifying
	if !verifies || now.Status.Upgrade() != nil ||
		now.Status.Revision != was.Status.Upgrade().Revision || f.rig.memory(now).reboots.Count >= disrupt.MaxReboots {
		f.violated("%s is to be rebooted in the midst of its update: %+v", n.Name, was.Status.Upgrade())
	}
}

// halts lets the observer check that no more nodes change to a failed revision.
func (f *fleet) halts(name, version string) {
	failed := 0
	for _, other := range f.p.now.instances {
		if other.Status.FailedRevision == version {
			failed++
		}
	}
	if failed >= f.threshold && f.resumed != version && !f.overlapped {
		f.violated("%s is taken to version %s, at which %d nodes failed", name, version, failed)
	}
}

// newFleet returns a fleet whose hosts are nodes at the first revision.
func newFleet(t *testing.T, pods *kubefake.Clientset, seed uint64) *fleet {
	t.Helper()
	schedule := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // no secret
	f := &fleet{t: t, r: schedule, host: map[string]*machineOf{}, threshold: 1, kinds: 18}
	f.p = &plane{now: newShelf()}
	f.p.lag = func() int {
		if f.calm {
			return 0
		}
		return f.r.IntN(3) * f.r.IntN(4)
	}
	f.p.before = f.watch
	f.p.after = func(client.Object, client.Object) error {
		if !f.calm && f.r.IntN(60) == 0 { // killed after the write
			f.killed = true
			return errKilled
		}
		return nil
	}
	f.rig = &rig{api: f.p, machines: map[string]*hosttest.Machine{}, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		version: "1.0.0-0000000000", quiet: true}
	f.real = f.rig.clock
	f.rig.key = credential.Key{PEM: []byte("pem"), Hash: "hash"}
	f.rig.slow = hosttestUnreachable
	f.rig.reaches = func(address string) bool { // hosts that are being removed, and hosts that can be reached
		i, h := f.p.now.instances[address], f.host[address]
		return i != nil && !i.DeletionTimestamp.IsZero() || h.answers && !h.down
	}
	f.rig.pods = pods
	pods.ReactionChain = nil // creating a clientset is slow, so all fleets use the same one, one after another
	pods.AddReactor("list", "pods", f.listPods)
	pods.AddReactor("create", "pods", f.evictPod)
	for n := range 3 + f.r.IntN(4) {
		f.add(fmt.Sprintf("win-%d", n))
	}
	f.allow(intstr.FromInt32(1))
	f.restart()
	return f
}

// names returns the names of the hosts. The order depends only on the seed.
func (f *fleet) names() []string { return slices.Sorted(maps.Keys(f.host)) }

func (f *fleet) add(name string) {
	f.host[name] = &machineOf{pods: 1, boot: 1}
	f.rig.machines[name] = hosttest.New(name)
	f.p.writes++
	generation := fmt.Sprint(f.p.writes) // makes the objects' names unique if a host returns under its old name
	joined := metav1.NewTime(f.real)
	f.p.store(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name + generation),
			Labels: map[string]string{corev1.LabelOSStable: "windows"}, Annotations: map[string]string{
				contract.RevisionAnnotation: f.rig.version, contract.DesiredRevisionAnnotation: f.rig.version,
				contract.BootIDAnnotation: "1", contract.InstanceAnnotation: namespace + "/" + name,
			}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue, LastTransitionTime: joined}}},
	})
	f.p.store(&v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name + generation),
			Generation: 1,
			Finalizers: []string{contract.InstanceFinalizer}, CreationTimestamp: joined},
		Spec: v1alpha1.WindowsInstanceSpec{Address: name, Username: "a", Port: 22},
		Status: v1alpha1.WindowsInstanceStatus{
			Phase: v1alpha1.PhaseReady, NodeName: name, NodeUID: "node-" + name + generation, PublicKeyHash: "hash",
			HostKey: "ssh-ed25519 AAAA" + name, Revision: f.rig.version,
			DesiredRevision: f.rig.version, HeldRevision: f.rig.version,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse,
				Reason: string(contract.ReasonNodeReady), ObservedGeneration: 1}},
		},
	})
}

// restart simulates a new operator process: it has no memory, and its caches start with the current objects.
func (f *fleet) restart() {
	f.before = f.rig.Reconciler
	f.p.past, f.killed = nil, false
	for _, m := range f.rig.machines {
		m.Break()
	}
	f.rig.restartWith(f.t, live{f.p, f.readsNodes})
}

// readsNodes is called after an operator has read the Nodes to assign slots. At this moment, a stale operator may make
// a decision as well.
func (f *fleet) readsNodes() {
	if f.calm || f.before == nil || f.isStale || f.r.IntN(4) != 0 {
		return
	}
	f.concurrent++
	f.overlapped = true
	f.lookStale()
}

func (f *fleet) allow(b intstr.IntOrString) {
	f.p.set(func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = &b })
	f.budget = b
}

func (f *fleet) listPods(a kubetesting.Action) (bool, runtime.Object, error) {
	list, ok := a.(kubetesting.ListAction)
	if !ok {
		return false, nil, nil
	}
	pods := &corev1.PodList{}
	for name, h := range f.host {
		if list.GetListRestrictions().Fields.String() != "spec.nodeName="+name {
			continue
		}
		for n := range h.pods {
			pods.Items = append(pods.Items,
				corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", name, n)},
					Spec: corev1.PodSpec{NodeName: name}})
		}
	}
	return true, pods, nil
}

func (f *fleet) evictPod(a kubetesting.Action) (bool, runtime.Object, error) {
	create, ok := a.(kubetesting.CreateAction)
	if !ok || a.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	eviction, ok := create.GetObject().(*policyv1.Eviction)
	if !ok {
		return false, nil, nil
	}
	name := eviction.Name[:strings.LastIndexByte(eviction.Name, '-')]
	if i := f.p.now.instances[name]; i == nil || !i.Status.HasSlot() {
		f.violated("pods of %s are evicted without a slot in the budget", name)
	}
	if f.host[name].blocked && f.host[name].refused {
		f.refused++
		return true, nil, apierrors.NewInternalError(errors.New(twoBudgets))
	}
	if f.host[name].blocked {
		return true, nil, apierrors.NewTooManyRequests("a disruption budget", 1)
	}
	f.host[name].pods = 0
	return true, nil, nil
}

// act simulates the next action of a host's daemon and kubelet.
func (f *fleet) act(name string) {
	h, n := f.host[name], f.p.now.nodes[name]
	if n == nil {
		return
	}
	a := n.Annotations
	say := func(ready corev1.ConditionStatus, values map[string]string) {
		f.p.change(name, func(n *corev1.Node) {
			if n.Status.Conditions[0].Status != ready {
				n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = ready,
					metav1.NewTime(f.real)
			}
			for key, value := range values {
				if n.Annotations[key] = value; value == "" {
					delete(n.Annotations, key)
				}
			}
		})
	}
	desired := a[contract.DesiredRevisionAnnotation]
	holds := desired == first1 || !h.bad
	switch {
	case h.down:
		if n.Status.Conditions[0].Status == corev1.ConditionTrue {
			say(corev1.ConditionUnknown, nil)
		}
	case a[contract.RebootApprovedAnnotation] == a[contract.BootIDAnnotation]:
		h.boot++
		h.pods = 0
		say(corev1.ConditionUnknown, map[string]string{contract.BootIDAnnotation: strconv.Itoa(h.boot)})
	case a[contract.RevisionAnnotation] != desired && h.toward != desired:
		h.toward = desired
		say(corev1.ConditionUnknown, map[string]string{contract.ApplyStatusAnnotation: ""})
	case a[contract.RevisionAnnotation] != desired && !holds:
		say(corev1.ConditionTrue, map[string]string{contract.ApplyStatusAnnotation: "ServiceFailed: revision " +
			desired + ": kubelet ended; the host is held at another"})
	case a[contract.RevisionAnnotation] != desired:
		say(corev1.ConditionTrue, map[string]string{contract.RevisionAnnotation: desired,
			contract.ApplyStatusAnnotation: ""})
	case n.Status.Conditions[0].Status != corev1.ConditionTrue:
		say(corev1.ConditionTrue, nil)
	case a[contract.StageAnnotation] != a[contract.StagedAnnotation]:
		say(corev1.ConditionTrue, map[string]string{contract.StagedAnnotation: a[contract.StageAnnotation]})
	}
	if !n.Spec.Unschedulable && !h.down {
		h.pods = 1
	}
}

const first1 = "1.0.0-0000000000"

// happen simulates one random event that the operator did not cause.
func (f *fleet) happen(version *int) {
	name := fmt.Sprintf("win-%d", f.r.IntN(len(f.host)))
	h := f.host[name]
	rare := f.r.IntN(5) == 0
	switch f.r.IntN(f.kinds) {
	case 0, 1, 2, 3, 4:
		f.act(name)
	case 5:
		h.down = !h.down && f.r.IntN(3) == 0
		f.note("%s is down: %v", name, h.down)
	case 6:
		h.blocked, h.refused = !h.blocked && f.r.IntN(2) == 0, f.r.IntN(2) == 0
	case 7:
		if rare {
			f.p.change(name, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
			f.note("somebody cordons %s: %v", name, f.p.now.nodes[name].Spec.Unschedulable)
		}
	case 8:
		if rare || *version == 0 {
			*version++
			f.rig.version = fmt.Sprintf("1.0.0-%010d", *version)
			f.note("version %s", f.rig.version)
		}
	case 9:
		h.bad = !h.bad && f.r.IntN(4) == 0
	case 10:
		if rare {
			all := []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2),
				intstr.FromString("0%"), intstr.FromString("50%"), intstr.FromString("100%"),
				intstr.FromString("nonsense"), intstr.FromString("400%"), intstr.FromInt32(-3)}
			b := all[f.r.IntN(len(all))]
			f.allow(b)
			f.note("budget %s", b.String())
		}
	case 11:
		if rare {
			f.resumed = f.rig.version
			f.p.set(func(c *v1alpha1.WindowsMachineConfig) {
				c.Annotations = map[string]string{contract.ResumeRolloutAnnotation: f.resumed}
			})
		}
	case 12:
		f.p.change(name, func(n *corev1.Node) { n.Annotations[contract.RebootRequestedAnnotation] = "" })
		f.note("somebody wants %s rebooted", name)
	case 13:
		f.pause(name, rare && !f.p.now.instances[name].Spec.Paused)
	case 14, 15:
		if rare {
			f.blip(name, f.r.IntN(2) == 0)
		}
	case 16:
		f.windows(rare)
	case 17:
		if rare {
			f.remove(name)
		}
	case 18:
		f.settings(rare)
	case 19:
		if rare {
			f.setClock()
		}
	case 20:
		h.answers = !h.answers
		f.note("%s answers: %v", name, h.answers)
	}
}

// knowsMore enables three more kinds of events: the settings are deleted, the operator's clock is set, and hosts are
// joined again.
func (f *fleet) knowsMore() {
	f.kinds = 21
	f.rig.clock = clock.At(f.rig.clock)
	f.p.requests = map[string]*certificatesv1.CertificateSigningRequest{}
	f.restart()
}

// settings deletes the settings if deleted is true. Otherwise, it restores them unchanged.
func (f *fleet) settings(deleted bool) {
	switch {
	case deleted && f.p.now.config != nil:
		f.deleted++
		f.note("the settings are deleted")
		f.p.unset()
	case f.p.now.config == nil:
		f.note("the settings are restored")
		f.p.set(func(*v1alpha1.WindowsMachineConfig) {})
	}
}

// setClock sets the operator's clock forward or back by two hours.
func (f *fleet) setClock() {
	f.set++
	by := 2 * time.Hour
	if f.r.IntN(2) == 0 {
		by = -by
	}
	f.rig.clock = clock.Set(f.rig.clock, by)
	f.ahead = f.ahead || by > 0
	f.note("the clock is set by %s", by)
}

// advance lets time pass.
func (f *fleet) advance(d time.Duration) {
	f.rig.clock, f.real = f.rig.clock.Add(d), f.real.Add(d)
}

// bootstraps returns how often kubelet was started over SSH on a host.
func (f *fleet) bootstraps(name string) (count int) {
	for _, verb := range f.rig.machines[name].Calls() {
		if verb == contract.VerbBootstrap {
			count++
		}
	}
	return count
}

// blip makes one node or all nodes NotReady for a moment, as late leases would do. The pods keep running.
func (f *fleet) blip(name string, all bool) {
	f.blips++
	f.note("%s is not Ready for a moment, and all others: %v", name, all)
	for _, one := range f.names() {
		if one != name && !all {
			continue
		}
		f.p.change(one, func(n *corev1.Node) {
			if n.Status.Conditions[0].Status == corev1.ConditionTrue {
				n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown,
					metav1.NewTime(f.real)
			}
		})
	}
}

// windows opens the maintenance windows. If closed is true, it closes them: the next window is in June.
func (f *fleet) windows(closed bool) {
	f.p.set(func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.MaintenanceWindows = nil
		if closed {
			c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 0 1 6 *",
				Duration: metav1.Duration{Duration: time.Hour}}}
		}
	})
	f.isClosed = closed
	f.note("windows are closed: %v", closed)
}

// remove deletes an instance.
func (f *fleet) remove(name string) {
	i := f.p.now.instances[name].DeepCopy()
	if i.DeletionTimestamp.IsZero() {
		now := metav1.NewTime(f.real)
		i.DeletionTimestamp = &now
		i.Generation++
		f.p.store(i)
		f.note("%s is deleted", name)
	}
}

// replace adds a new host for each removed host.
func (f *fleet) replace() {
	for n := range len(f.host) {
		if name := fmt.Sprintf("win-%d", n); f.p.now.instances[name] == nil {
			f.removed++
			f.note("%s is gone, and there is another", name)
			delete(f.p.now.nodes, name)
			f.add(name)
			f.p.past = nil // after the cache has contained the new instance, it never contains the old one again
		}
	}
}

func (f *fleet) pause(name string, paused bool) {
	i := f.p.now.instances[name].DeepCopy()
	if i.Spec.Paused != paused {
		i.Spec.Paused = paused
		i.Generation++
		f.p.store(i)
		f.note("%s is paused: %v", name, paused)
	}
}

// look reconciles an instance. If the operator is killed during this, a new operator starts.
func (f *fleet) look(name string) {
	f.overlapped = false
	if due := f.isDue(name); due && f.isClosed {
		f.shut++
	} else if due && f.limit() == 0 {
		f.none++
	}
	f.noteLost(name)
	served, bootstraps := f.serves(name) && f.host[name].pods > 0, f.bootstraps(name)
	_, err := f.rig.Reconcile(f.t.Context(),
		ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	if f.bootstraps(name) > bootstraps {
		f.again++
		f.note("%s is joined again", name)
		if i := f.p.now.instances[name]; served && (i == nil || !i.Status.HasSlot()) {
			f.violated("%s is joined again while it serves", name)
		}
	}
	if i := f.p.now.instances[name]; i != nil && i.Status.Phase == v1alpha1.PhaseReady {
		f.host[name].lost = false
	}
	f.replace()
	if f.killed {
		f.note("the operator is killed at %s", name)
		f.restart()
		return
	}
	if err != nil && !apierrors.IsConflict(err) {
		f.violated("%s: %v", name, err)
	}
}

// lookStale lets a stale operator reconcile an instance.
func (f *fleet) lookStale() {
	present := f.rig.Reconciler
	f.rig.Reconciler, f.isStale = f.before, true
	defer func() { f.isStale = false }()
	name := fmt.Sprintf("win-%d", f.r.IntN(len(f.host)))
	f.note("a stale operator looks at %s", name)
	f.noteLost(name)
	_, _ = f.rig.Reconcile(f.t.Context(), // the result is irrelevant
		ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	f.rig.Reconciler, f.killed = present, false
	f.replace()
}

// heal ends all faults. After that, all nodes must become healthy, and then the operator must not write any more.
func (f *fleet) heal() {
	f.calm = true
	f.windows(false)
	for _, h := range f.host {
		h.blocked, h.bad, h.down, h.answers = false, false, false, f.p.requests != nil
	}
	f.allow(intstr.FromInt32(1))
	f.rig.version = "1.0.0-9999999999"
	for _, name := range f.names() {
		f.pause(name, false)
		f.p.change(name, func(n *corev1.Node) {
			n.Spec.Unschedulable = n.Spec.Unschedulable && n.Annotations[contract.CordonedAnnotation] == "true"
			delete(n.Annotations, contract.RebootRequestedAnnotation)
		})
	}
	for range 500 {
		rest := true
		f.advance(20 * time.Second)
		for n := range len(f.host) {
			name := fmt.Sprintf("win-%d", n)
			f.act(name)
			f.look(name)
			i, node := f.p.now.instances[name], f.p.now.nodes[name]
			rest = rest && i.Status.Revision == f.rig.version && i.Status.Upgrade() == nil && i.Status.Reboot() == nil &&
				!i.Status.HasSlot() &&
				node.Labels[contract.UpgradingLabel] == "" && node.Annotations[contract.CordonedAnnotation] == "" &&
				!node.Spec.Unschedulable && i.Status.Phase == v1alpha1.PhaseReady
		}
		if rest {
			return
		}
	}
	for name, i := range f.p.now.instances {
		f.note("%s: %s %s %+v %+v, %v", name, i.Status.Phase, i.Status.Message(), i.Status.Upgrade(), i.Status.Reboot(),
			f.p.now.nodes[name].Annotations)
	}
	f.violated("it does not come to rest")
}

// run runs a schedule until it ends or the observer finds a violation.
func (f *fleet) run() {
	version := 0
	for range steps {
		f.advance(time.Duration(1+f.r.IntN(45)) * time.Second)
		for range 1 + f.r.IntN(3) {
			f.happen(&version)
		}
		for range 2 {
			f.look(fmt.Sprintf("win-%d", f.r.IntN(len(f.host))))
		}
		if f.r.IntN(40) == 0 {
			f.restart()
		}
		if f.before != nil && f.r.IntN(30) == 0 {
			f.lookStale()
		}
		if f.t.Failed() {
			return
		}
	}
	f.heal()
}

// The same seed must always lead to the same schedule, so that a violation can be reproduced.
func TestASeedRepeatsItsSchedule(t *testing.T) {
	t.Parallel()
	first, pods := rand.Uint64(), kubefake.NewClientset()
	for schedule := range uint64(10) {
		journals := [2][]string{}
		for n := range journals {
			f := newFleet(t, pods, first+schedule)
			f.knowsMore()
			f.run()
			f.note("%d writes, and %d comes next", f.p.writes, f.r.Uint64())
			journals[n] = f.journal
		}
		if diff := cmp.Diff(journals[0], journals[1]); diff != "" {
			t.Fatalf("seed %d, the second time: %s", first+schedule, diff)
		}
	}
}

// In these schedules, the observer once found a violation. In the first schedule, a stale operator uncordoned a node
// whose pods were lost, after the new leader had read the Nodes and before it assigned the slot. In the second
// schedule, a slot was released when a pause ended. In the third schedule, the operator was right: it released the slot
// of a host that it could not reach, but only with the step after the attempt.
func TestA28_SchedulesThatOnceExceededTheBudget(t *testing.T) {
	t.Parallel()
	pods := kubefake.NewClientset()
	for _, seed := range []uint64{17684973464418948535, 15900765175375646017, 13682184014610488624} {
		f := newFleet(t, pods, seed)
		f.run()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// In this test, any events happen in any order: caches lag behind, operators are stale or are killed at any write,
// nodes go down or are NotReady for a moment, drains block, evictions are refused, revisions fail, budgets change,
// windows close, settings are deleted and restored, the operator's clock is set, and hosts are removed or joined again.
//
// The observer checks these invariants, and only reads the API server for this. If the budget is used up, no node in
// service is disrupted. The operator works on no more nodes that are down than the budget allows. Nothing begins while
// the windows are closed. No node is switched while its pods run. No second node is upgraded to a failed revision. No
// cordon of another user is removed. In the end, every node is healthy.
func TestA28_NoScheduleExceedsTheBudget(t *testing.T) {
	t.Parallel()
	first := rand.Uint64()
	if text, ok := os.LookupEnv("WMCO_SEED"); ok {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			first = n
		}
	}
	pods := kubefake.NewClientset()
	var all tally
	for schedule := range uint64(schedules) {
		seed := first + schedule
		f := newFleet(t, pods, seed)
		f.knowsMore()
		if seed%2 == 1 { // only every second time, because otherwise few drains would last long enough
			f.p.set(func(c *v1alpha1.WindowsMachineConfig) {
				c.Spec.Rollout.DrainTimeout = &metav1.Duration{Duration: 2 * time.Minute}
			})
		}
		f.run()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		all.add(f.tally)
	}
	t.Logf("first seed %d: in %d schedules there was %+v", first, schedules, all)
	for what, enough := range map[string]bool{
		"nodes are disrupted":                   all.disrupted >= 5*schedules,
		"several are at once":                   all.peak >= 2,
		"revisions fail":                        all.wentBack > 0,
		"nodes are rebooted":                    all.reboots > 0,
		"updates go on with a reboot":           all.both > 0,
		"hosts are removed":                     all.removed > 0,
		"readiness has hiccups":                 all.blips > 0,
		"two operators decide at once":          all.concurrent >= schedules/2,
		"nodes wait while windows are closed":   all.shut >= 2*schedules,
		"nodes wait while there is no budget":   all.none >= 2*schedules,
		"settings are deleted":                  all.deleted >= schedules/4,
		"the clock is set":                      all.set >= schedules/4,
		"hosts are joined again":                all.again >= schedules/10,
		"evictions are refused":                 all.refused >= schedules/10,
		"evictions that are refused end drains": all.stuck > 0,
	} {
		if !enough {
			t.Errorf("this shows too little: %s is too rare", what)
		}
	}
}
