package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	facts "github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/clock"
)

// schedules and steps limit the search for a schedule of events that exceeds the budget. The search takes two seconds.
const (
	schedules = 60
	steps     = 250
)

// host is the real state of one host.
type host struct {
	name             string
	set              string // the name of its MachineSet; empty for a host that a user added
	node             bool   // it has a Node
	ready, cordoned  bool
	version, desired int
	request          int  // the number of its request for a slot; 0 for none
	claimed          bool // it uses its slot
	deleting         bool // its Machine is being deleted
	key              int  // the key that the host accepts
	writes           int  // how often its instance was written
}

// serves reports whether a host is in service: pods can be scheduled there and keep running. It is written
// independently of the code under test.
func (h host) serves() bool {
	return h.node && h.ready && !h.cordoned && h.version == h.desired && !h.claimed && !h.deleting
}

// disrupted reports whether a host is out of service for any reason except an administrator's cordon. On a cordoned
// node, pods keep running.
func (h host) disrupted() bool {
	h.cordoned = false
	return !h.serves()
}

// world is a cluster in which any event may happen at any time.
type world struct {
	hosts  []host
	sets   map[string]int // the replicas of each MachineSet
	budget intstr.IntOrString
	names  int
	// list is the ConfigMap with the list of assigned slots, or nil if the ConfigMap doesn't exist.
	list *corev1.ConfigMap
	// isUnset is true while the settings are deleted.
	isUnset bool
	// version is the desired revision, and key is the current key.
	version, key int
}

func (w *world) clone() world {
	c := *w
	c.hosts, c.sets = slices.Clone(w.hosts), map[string]int{}
	for name, replicas := range w.sets {
		c.sets[name] = replicas
	}
	return c
}

func (w *world) find(name string) *host {
	for i := range w.hosts {
		if w.hosts[i].name == name {
			return &w.hosts[i]
		}
	}
	return nil
}

// lost returns how many hosts should be in service but aren't, and how many hosts there should be. The host with the
// name aside counts as in service.
func (w *world) lost(aside string) (lost, total int) {
	serving, there := map[string]int{}, map[string]int{}
	for _, h := range w.hosts {
		if h.set == "" {
			if total++; !h.serves() && h.name != aside {
				lost++
			}
			continue
		}
		if h.node {
			there[h.set]++
		}
		if h.serves() || h.name == aside {
			serving[h.set]++
		}
	}
	for name, replicas := range w.sets {
		total += max(replicas, there[name])
		lost += max(0, replicas-serving[name])
	}
	return lost, total
}

func (w *world) limit(total int) int {
	if w.budget.Type == intstr.Int {
		return int(w.budget.IntVal)
	}
	var percent float64
	if _, err := fmt.Sscanf(w.budget.StrVal, "%f%%", &percent); err != nil {
		panic(err)
	}
	return int(math.Ceil(percent / 100 * float64(total)))
}

// List and Get return the world's objects, as an API server does.
func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.NodeList:
		for _, h := range w.hosts {
			if h.node {
				list.Items = append(list.Items, h.asNode())
			}
		}
	case *v1alpha1.WindowsInstanceList:
		for _, h := range w.hosts {
			list.Items = append(list.Items, h.asInstance(w.key))
		}
	}
	return nil
}

func (w *world) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if list, ok := o.(*corev1.ConfigMap); ok && w.list != nil {
		w.list.DeepCopyInto(list)
		return nil
	}
	if secret, ok := o.(*corev1.Secret); ok { // the publisher saves the settings in this Secret
		data, err := facts.Memory(&v1alpha1.WindowsMachineConfig{
			ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject},
			Spec:       v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{MaxUnavailable: &w.budget}}}, nil)
		secret.Data = data
		return err
	}
	config, ok := o.(*v1alpha1.WindowsMachineConfig)
	if !ok || w.isUnset {
		return apierrors.NewNotFound(corev1.Resource("nothing"), "")
	}
	config.Spec.Rollout.MaxUnavailable = &w.budget
	return nil
}

// writer writes the list of slots, unless the list has changed since it was read.
type writer struct {
	client.Writer
	c *cluster
}

func (w writer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return w.Update(context.Background(), o)
}

func (w writer) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	list, ok := o.(*corev1.ConfigMap)
	present := ""
	if w.c.now.list != nil {
		present = w.c.now.list.ResourceVersion
	}
	if !ok || list.ResourceVersion != present {
		return apierrors.NewConflict(corev1.Resource("configmaps"), o.GetName(), errors.New("modified concurrently"))
	}
	w.c.now.list = list.DeepCopy()
	w.c.now.list.ResourceVersion = present + "1"
	return nil
}

func (h host) asNode() corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name, Annotations: map[string]string{
		contract.RevisionAnnotation: fmt.Sprint(h.version), contract.DesiredRevisionAnnotation: fmt.Sprint(h.desired),
	}}}
	state := corev1.ConditionFalse
	if h.ready {
		state = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: state}}
	n.Spec.Unschedulable = h.cordoned
	return n
}

func (h host) asInstance(key int) v1alpha1.WindowsInstance {
	i := v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Name: h.name, UID: types.UID(h.name),
		ResourceVersion: fmt.Sprint(h.writes)}}
	if h.node {
		i.Status.NodeName, i.Status.HeldRevision = h.name, "1"
	}
	if h.request != 0 {
		i.Status.Slot = &v1alpha1.Slot{}
		i.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Step: v1alpha1.StepWaiting}
	}
	if h.claimed {
		i.Status.Slot.Since = new(metav1.NewTime(time.Unix(3, 0)))
	}
	if h.deleting {
		now := metav1.NewTime(time.Unix(2, 0))
		i.DeletionTimestamp = &now
	}
	i.Status.PublicKeyHash = fmt.Sprint(h.key)
	if h.key != key {
		i.Status.KeyRefusal = &v1alpha1.KeyRefusal{PublicKeyHash: fmt.Sprint(key),
			Since: metav1.NewTime(time.Unix(1, 0)), Time: metav1.NewTime(time.Unix(3, 0))}
	}
	return i
}

// cluster is a world with its history. Caches that lag behind show an earlier moment of this history.
type cluster struct {
	t       *testing.T
	r       *rand.Rand
	now     world
	past    []world
	rollout *rollout.Rollout
	clock   time.Time
	acted   int
	// requests counts the instances' requests for slots.
	requests int
	journal  []string
	// slow contains writes of slots that have not reached the API server yet, by the host's name. used counts the
	// writes that reached it and were accepted.
	slow map[string]late
	used int
	// set counts changes of the clock. rejoined counts hosts that joined again. unset counts events that happened while
	// the settings were deleted.
	set, rejoined, unset int
}

// cachedReader shows the world at a random earlier moment.
type cachedReader struct{ c *cluster }

func (r cachedReader) moment() *world {
	lag := r.c.r.IntN(6)
	if lag >= len(r.c.past) {
		return &r.c.now
	}
	return &r.c.past[len(r.c.past)-1-lag]
}

func (r cachedReader) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return r.moment().List(ctx, list, o...)
}

func (r cachedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	options ...client.GetOption) error {
	return r.c.now.Get(ctx, key, o, options...) // the settings rarely change, so read them without a cache
}

// Sets returns the MachineSets: as they are now if live is true, and otherwise as they were at an earlier moment.
func (c *cluster) Sets(_ context.Context, live bool) ([]policy.Set, error) {
	w := &c.now
	if !live {
		w = cachedReader{c}.moment()
	}
	var all []policy.Set
	for name, replicas := range w.sets {
		set := policy.Set{UID: types.UID(name), Name: name, Replicas: replicas}
		for _, h := range w.hosts {
			if h.set == name {
				set.Hosts = append(set.Hosts, policy.SetHost{Name: h.name, Leaving: h.deleting})
			}
		}
		all = append(all, set)
	}
	return all, nil
}

func (c *cluster) note(format string, args ...any) {
	c.journal = append(c.journal, fmt.Sprintf(format, args...))
}

// watch checks, when a host is about to be disrupted, that the budget allows the disruption.
func (c *cluster) watch(h *host, what string) {
	c.acted++
	if !h.node || !h.ready {
		return // the node is already down
	}
	lost, total := c.now.lost(h.name)
	if limit := c.now.limit(total); lost >= limit {
		c.note("%s %s though %d of %d are lost and %d may be", what, h.name, lost, total, limit)
		c.t.Errorf("the budget is exceeded:\n%v", c.journal[max(0, len(c.journal)-15):])
	}
}

// restart starts a new operator process, which has no memory of the old one.
func (c *cluster) restart() {
	again, err := rollout.New(rollout.Options{Cached: cachedReader{c}, Live: &c.now, Writer: writer{c: c}, Sets: c,
		Namespace: namespace, Now: func() time.Time { return c.clock }})
	if err != nil {
		c.t.Fatal(err)
	}
	c.rollout = again
}

// update updates a host to the desired revision, up to the step that the operator allows. The operator may be killed
// after every step.
func (c *cluster) update(name string) {
	h := c.now.find(name)
	if h.request == 0 {
		c.requests++
		h.request, h.writes = c.requests, h.writes+1
	}
	if c.r.IntN(3) > 0 {
		_, _ = c.rollout.Reconcile(c.t.Context(), ctrl.Request{}) // this decision may conflict with another operator's
	}
	if c.r.IntN(3) == 0 {
		return // other hosts come first
	}
	instance := h.asInstance(c.now.key)
	if _, known := c.rollout.Verdict(&instance); !known && c.r.IntN(2) == 0 {
		return
	}
	has, err := c.rollout.HasSlot(c.t.Context(), &instance)
	switch died := c.r.IntN(20); {
	case !has || err != nil:
		h.writes++ // writing why the host waits
		return
	case !h.node:
		h.request, h.writes = 0, h.writes+1
		return
	case died == 0: // killed before the status shows that the host uses its slot
		c.restart()
		return
	case died == 1:
		defer c.restart()
	case died == 2: // killed, and the write of the status arrives much later
		c.slow[name] = late{version: h.writes}
		c.restart()
		return
	}
	c.claim(h)
}

// late is a delayed write. version is the version of the instance that it changes. limit is the largest budget that was
// set during the delay.
type late struct{ version, limit int }

// arrive lets delayed writes reach the API server. A write is accepted if its instance is unchanged. By then, other
// hosts may be down, but the operator itself must not disrupt more hosts than the budget allows.
func (c *cluster) arrive(now bool) {
	for name, write := range c.slow {
		_, total := c.now.lost("")
		write.limit = max(write.limit, c.now.limit(total))
		if c.slow[name] = write; !now {
			continue
		}
		delete(c.slow, name)
		h := c.now.find(name)
		if h == nil || !h.node || h.writes != write.version {
			continue
		}
		c.used++
		h.claimed, h.writes = true, h.writes+1
		c.note("updates %s late", name)
		hands := 0
		for _, other := range c.now.hosts {
			if other.claimed && !other.deleting {
				hands++
			}
		}
		if hands > write.limit && !h.deleting {
			c.t.Errorf("%d nodes are disrupted, %d are allowed: %v",
				hands, write.limit, c.journal[max(0, len(c.journal)-15):])
		}
	}
}

// claim records in the status that a host uses its slot.
func (c *cluster) claim(h *host) {
	if !h.disrupted() {
		c.watch(h, "updates")
	}
	h.claimed, h.writes = true, h.writes+1
	c.note("updates %s", h.name)
}

// replace deletes Machines whose hosts refuse the key, as far as the rollout allows it.
func (c *cluster) replace() {
	var due []policy.ReplaceCandidate
	for _, h := range c.now.hosts {
		instance := h.asInstance(c.now.key)
		cause, _ := policy.WhyReplace(&instance, fmt.Sprint(c.now.key), time.Unix(100, 0), time.Second)
		if h.set != "" && cause != "" && !h.deleting {
			due = append(due, policy.ReplaceCandidate{Name: h.name, Node: instance.Status.NodeName, Cause: cause,
				Set: types.UID(h.set)})
		}
	}
	decided, err := c.rollout.Replace(c.t.Context(), due)
	if err != nil {
		return
	}
	for _, one := range due {
		h := c.now.find(one.Name)
		switch {
		case decided.Machines[one.Name].Action != policy.ActReplace:
			continue
		case h == nil || h.deleting:
			if err = c.rollout.Withdraw(c.t.Context(), one.Name); err != nil {
				c.t.Error(err)
			}
			continue
		case c.r.IntN(20) == 0: // the operator is killed before it deletes the Machine
			c.restart()
			return
		}
		c.watch(h, "replaces")
		c.atLeast(h)
		h.deleting = true
		c.note("replaces %s", h.name)
	}
}

// atLeast checks that a set that loses a host in service keeps as many hosts in service as the budget requires.
func (c *cluster) atLeast(gone *host) {
	if !gone.node || !gone.ready {
		return
	}
	serving := 0
	for _, h := range c.now.hosts {
		if h.set == gone.set && h.name != gone.name && h.serves() {
			serving++
		}
	}
	if replicas := c.now.sets[gone.set]; serving < replicas-c.now.limit(replicas) {
		c.t.Errorf("%s has only %d of %d hosts: %v", gone.set, serving, replicas, c.journal[max(0, len(c.journal)-15):])
	}
}

// happen simulates one random event that the operator did not cause.
func (c *cluster) happen() {
	w := &c.now
	h := &w.hosts[c.r.IntN(len(w.hosts))]
	switch c.r.IntN(15) {
	case 0: // a host that uses its slot goes down
		if h.claimed && h.node {
			h.desired, h.ready = w.version, false
		}
	case 1, 2: // … and recovers at the desired revision
		if h.claimed && h.desired == w.version {
			h.version, h.ready, h.claimed, h.request, h.writes = h.desired, true, false, 0, h.writes+1
		}
	case 3, 4: // the host of a deleted Machine is destroyed
		if h.deleting {
			c.note("%s is gone", h.name)
			w.hosts = slices.DeleteFunc(w.hosts, func(o host) bool { return o.name == h.name })
		}
	case 5: // a new host becomes a node
		if !h.node && !h.deleting {
			h.node, h.ready, h.version, h.desired = true, true, w.version, w.version
		}
	case 6: // a host goes down or recovers
		if h.node && !h.claimed && c.r.IntN(3) == 0 {
			h.ready = !h.ready
			c.note("%s is ready: %v", h.name, h.ready)
		}
	case 7: // an administrator cordons a node
		if h.node && c.r.IntN(4) == 0 {
			h.cordoned = !h.cordoned
			c.note("%s is cordoned: %v", h.name, h.cordoned)
		}
	case 8:
		if c.r.IntN(6) == 0 {
			w.version++
			c.note("version %d", w.version)
		}
	case 9:
		if c.r.IntN(6) == 0 {
			w.key = 1 - w.key // the key changes to the other one
			c.note("key %d", w.key)
		}
	case 10:
		c.scale()
	case 11:
		if c.r.IntN(5) == 0 {
			w.budget = budgets()[c.r.IntN(len(budgets()))]
			c.note("budget %s", w.budget.String())
		}
	case 12: // the settings are deleted or restored
		w.isUnset = c.r.IntN(3) == 0
		c.note("the settings are deleted: %v", w.isUnset)
	case 13:
		if c.r.IntN(5) == 0 {
			by := []time.Duration{2 * time.Hour, -2 * time.Hour}[c.r.IntN(2)]
			c.clock, c.set = clock.Set(c.clock, by), c.set+1
			c.note("the clock is set by %s", by)
		}
	case 14: // a host that joined again responds, and is back at its previous revision
		if h.claimed && h.node && !h.ready {
			h.desired, h.ready, h.claimed, h.request, h.writes = h.version, true, false, 0, h.writes+1
			c.rejoined++
			c.note("%s is joined again", h.name)
		}
	}
	if w.isUnset {
		c.unset++
	}
	c.makeHosts()
}

func (c *cluster) scale() {
	for name := range c.now.sets {
		if c.r.IntN(20) == 0 {
			c.now.sets[name] = 1 + c.r.IntN(5)
			c.note("%s has %d replicas", name, c.now.sets[name])
		}
	}
}

// makeHosts simulates the MachineSet controller. It creates missing hosts, which accept the current key, and deletes
// surplus hosts. Hosts that are being deleted don't count.
func (c *cluster) makeHosts() {
	for name, replicas := range c.now.sets {
		var staying []*host
		for i := range c.now.hosts {
			if h := &c.now.hosts[i]; h.set == name && !h.deleting {
				staying = append(staying, h)
			}
		}
		for i := replicas; i < len(staying); i++ {
			staying[i].deleting = true
		}
		for i := len(staying); i < replicas; i++ {
			c.now.names++
			c.now.hosts = append(c.now.hosts,
				host{name: fmt.Sprintf("%s-%d", name, c.now.names), set: name, key: c.now.key})
		}
	}
}

func budgets() []intstr.IntOrString {
	return []intstr.IntOrString{intstr.FromInt(0), intstr.FromInt(1), intstr.FromInt(1), intstr.FromInt(2),
		intstr.FromInt(3), intstr.FromString("10%"), intstr.FromString("30%")}
}

// In this test, events happen in any order, caches lag behind, and operators are killed. While the budget is used up,
// the operator must never disrupt a host in service, no matter why other hosts are down.
func TestA18_NoScheduleExceedsTheBudget(t *testing.T) {
	t.Parallel()
	first := rand.Uint64()
	total, slow, set, rejoined, unset := 0, 0, 0, 0, 0
	for schedule := range uint64(schedules) {
		seed := first + schedule
		c := &cluster{t: t, clock: clock.At(time.Unix(1e9, 0)), slow: map[string]late{}, r: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // no secret
		c.now = world{sets: map[string]int{"a": 3, "b": 1 + c.r.IntN(4)}, budget: budgets()[c.r.IntN(len(budgets()))]}
		for n := range 3 {
			c.now.hosts = append(c.now.hosts, host{name: fmt.Sprintf("own-%d", n), node: true, ready: true})
		}
		c.makeHosts()
		for i := range c.now.hosts {
			c.now.hosts[i].node, c.now.hosts[i].ready = true, true
		}
		c.restart()
		for range steps {
			c.past = append(c.past[max(0, len(c.past)-8):], c.now.clone())
			c.clock = c.clock.Add(time.Duration(c.r.IntN(40)) * time.Second)
			for range 1 + c.r.IntN(3) {
				c.happen()
			}
			h := c.now.hosts[c.r.IntN(len(c.now.hosts))]
			if h.node && h.desired != c.now.version && !h.claimed {
				c.update(h.name)
			}
			if c.r.IntN(2) == 0 {
				c.replace()
			}
			if c.r.IntN(30) == 0 {
				c.restart()
			}
			c.arrive(c.r.IntN(6) == 0)
		}
		total, slow = total+c.acted, slow+c.used
		set, rejoined, unset = set+c.set, rejoined+c.rejoined, unset+c.unset
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("first seed %d; %d hosts were disrupted, %d of them by a delayed write", first, total, slow)
	if total < schedules || slow == 0 {
		t.Errorf("only %d hosts were disrupted, so the test shows nothing", total)
	}
	if set < schedules || rejoined < schedules/4 || unset < schedules {
		t.Errorf("the clock was set %d times, %d hosts were joined again, %d events happened without settings, so "+
			"the test shows too little", set, rejoined, unset)
	}
}
