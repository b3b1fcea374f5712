package csr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/scheme"
)

// world is a reconciler with its cache, its API server and its events.
type world struct {
	*Reconciler
	said *events.FakeRecorder
	// asked counts the reads from the API server that bypass the cache.
	asked *int
}

// newWorld returns a world whose cache and API server have the same objects.
func newWorld(t *testing.T, objects ...client.Object) world {
	t.Helper()
	return newStaleWorld(t, interceptor.Funcs{}, objects, nil)
}

// newStaleWorld returns a world in which the API server has newer versions of some objects than the cache.
func newStaleWorld(t *testing.T, funcs interceptor.Funcs, objects []client.Object, newer []client.Object) world {
	t.Helper()
	build := func(objects []client.Object) *fake.ClientBuilder {
		b := fake.NewClientBuilder().WithScheme(scheme.New(t)).WithInterceptorFuncs(funcs).
			WithStatusSubresource(&v1alpha1.WindowsInstance{})
		for _, o := range objects { // the fake client changes its objects, and parallel tests share them
			b = b.WithObjects(
				o.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // a copy has its original's type
		}
		for _, i := range indexes(bootstrapUser()) {
			b = b.WithIndex(i.object, i.field, i.values)
		}
		return b
	}
	cached := build(objects).Build()
	source := cached
	if newer != nil {
		source = build(newer).Build()
	}
	w := world{said: events.NewFakeRecorder(64), asked: new(int)}
	live := interceptor.NewClient(source, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			*w.asked++
			return c.Get(ctx, key, o, opts...)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("a list without the cache")
		},
	})
	w.Reconciler = newReconciler(cached, live, w.said,
		Options{Namespace: namespace, OperatorUser: OperatorUser(namespace), BootstrapUser: bootstrapUser(), UsedTokens: NewUsedTokens(),
			Reserved: func(context.Context) ([]netip.Prefix, []string, error) { return nil, nil, nil },
			ServiceNetwork: func(context.Context) (netip.Prefix, error) {
				return netip.MustParsePrefix("172.30.0.0/16"),
					nil
			}})
	return w
}

// decide reconciles a request. It returns the request's condition, such as "Approved WMCOApprove", or "" without one.
func (w world) decide(t *testing.T, name string) (condition string, result ctrl.Result) {
	t.Helper()
	result, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
	if err != nil {
		t.Fatalf("reconciling %s: %v", name, err)
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	if err = w.client.Get(t.Context(), client.ObjectKey{Name: name}, csr); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	var conditions []string
	for _, c := range csr.Status.Conditions {
		conditions = append(conditions, string(c.Type)+" "+c.Reason)
	}
	return strings.Join(conditions, ", "), result
}

// heard returns the events so far, each as "<type> <reason> <message>".
func (w world) heard() []string {
	var all []string
	for {
		select {
		case e := <-w.said.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func TestA07_DecisionsAreWrittenDown(t *testing.T) {
	t.Parallel()
	joining := instance("a", nodeName, nodeAddress, v1alpha1.PhaseBootstrapping)
	ready := instance("a", nodeName, nodeAddress, v1alpha1.PhaseReady)
	serving := node(nodeName, "a", corev1.ConditionTrue, nodeAddress)
	forged := daemonFirst(t, "csr", nodeName, "a")
	forged.Spec.Username = "mallory"
	greedy := kubeletClient(t, "csr", nodeName)
	greedy.Spec.ExpirationSeconds = new(int32(10 * 365 * 24 * 3600))
	tests := map[string]struct {
		csr       *certificatesv1.CertificateSigningRequest
		objects   []client.Object
		condition string
		said      []string
		waits     bool
	}{
		"a joining host's kubelet is approved with the reason that users know": {
			csr: kubeletClient(t, "csr", nodeName), objects: []client.Object{joining},
			condition: "Approved WMCOApprove"},
		"a joining host's daemon is approved with the reason that users know": {
			csr: daemonFirst(t, "csr", nodeName, "a"), objects: []client.Object{joining},
			condition: "Approved WICDAutoApproved"},
		"a node's serving certificate is approved": {
			csr: kubeletServing(t, "csr", nodeName, nodeAddress), objects: []client.Object{ready, serving},
			condition: "Approved WMCOApprove"},
		"a forged request for a daemon is denied, and reported at the request and at the instance": {
			csr: forged, objects: []client.Object{joining},
			condition: "Denied CSRRequesterWrong",
			said:      []string{"Warning CSRRequesterWrong", "Warning CSRRequesterWrong"}},
		"a kubelet's request that breaks a rule stays pending, and is reported": {
			csr: greedy, objects: []client.Object{joining},
			said: []string{"Warning CSRLifetimeLong", "Warning CSRLifetimeLong"}},
		"an early request waits without a report": {
			csr:     kubeletClient(t, "csr", nodeName),
			objects: []client.Object{instance("a", nodeName, nodeAddress, v1alpha1.PhaseDelivering)}, waits: true},
		"a serving request waits for the Node": {
			csr: kubeletServing(t, "csr", nodeName, nodeAddress), objects: []client.Object{ready}, waits: true},
		"another machine's request is left alone": {
			csr: kubeletClient(t, "csr", "master-0"), objects: []client.Object{joining}},
		"an instance in another namespace is not ours": {
			csr: kubeletClient(t, "csr", nodeName), objects: []client.Object{moved(joining, "default")}},
		"an address that another Node has is not given twice": {
			csr:     kubeletServing(t, "csr", nodeName, nodeAddress),
			objects: []client.Object{ready, serving, node("master-0", "", corev1.ConditionTrue, nodeAddress)},
			said:    []string{"Warning CSRNameNotOfNode", "Warning CSRNameNotOfNode"}},
		"nor one of a Windows Node that no instance has, which may be somebody else's": {
			csr:     kubeletServing(t, "csr", nodeName, nodeAddress),
			objects: []client.Object{ready, serving, windows(node("win-x", "", corev1.ConditionTrue, nodeAddress))},
			said:    []string{"Warning CSRNameNotOfNode", "Warning CSRNameNotOfNode"}},
		"an address that another instance's node has is not given twice": {
			csr:     kubeletServing(t, "csr", nodeName, nodeAddress),
			objects: []client.Object{ready, serving, instance("b", "win-b", nodeAddress, v1alpha1.PhaseReady)},
			said:    []string{"Warning CSRNameNotOfNode", "Warning CSRNameNotOfNode"}},
		"a second entry for the same host, which gets no node, does not stand in the way": {
			csr:       kubeletServing(t, "csr", nodeName, nodeAddress),
			objects:   []client.Object{ready, serving, instance("again", "", nodeAddress, v1alpha1.PhasePreflight)},
			condition: "Approved WMCOApprove"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, append(slices.Clone(test.objects), test.csr)...)
			condition, result := w.decide(t, "csr")
			if condition != test.condition {
				t.Errorf("condition %q, want %q", condition, test.condition)
			}
			heard := w.heard()
			if !slices.EqualFunc(heard, test.said, strings.HasPrefix) {
				t.Errorf("the events are %q, want %q", heard, test.said)
			}
			if waits := result.RequeueAfter > 0; waits != test.waits {
				t.Errorf("reconciled again after %s", result.RequeueAfter)
			}
			if again, _ := w.decide(t, "csr"); again != condition {
				t.Errorf("a second reconcile changed %q, before it was %q", again, condition)
			}
		})
	}
}

// windows labels a Node as a Windows node.
func windows(n *corev1.Node) *corev1.Node {
	n.Labels = map[string]string{corev1.LabelOSStable: string(corev1.Windows)}
	n.Status.NodeInfo.OperatingSystem = string(corev1.Windows)
	return n
}

func moved(i *v1alpha1.WindowsInstance, to string) *v1alpha1.WindowsInstance {
	i = i.DeepCopy()
	i.Namespace = to
	return i
}

func TestTenThousandForeignRequestsCostNoQuestionToTheAPIServer(t *testing.T) {
	t.Parallel()
	foreign := kubeletClient(t, "", "linux-0")
	objects := []client.Object{instance("a", nodeName, nodeAddress, v1alpha1.PhaseBootstrapping),
		kubeletClient(t, "ours", nodeName)}
	for i := range 10_000 {
		one := foreign.DeepCopy()
		one.Name = fmt.Sprintf("foreign-%d", i)
		objects = append(objects, one)
	}
	w := newWorld(t, objects...)
	for i := range 10_000 {
		result, err := w.Reconcile(t.Context(),
			ctrl.Request{NamespacedName: client.ObjectKey{Name: fmt.Sprintf("foreign-%d", i)}})
		if err != nil || result != (ctrl.Result{}) {
			t.Fatalf("request %d: %v, %v", i, result, err)
		}
	}
	if *w.asked != 0 || len(w.heard()) != 0 {
		t.Errorf("asked %d times", *w.asked)
	}
	if condition, _ := w.decide(t, "ours"); condition != "Approved WMCOApprove" {
		t.Errorf("the host's request: %q", condition)
	}
}

func TestOnlyARefusalByTheClusterReadsTheNodeFromTheAPIServer(t *testing.T) {
	t.Parallel()
	ready, serving := instance("a", nodeName, nodeAddress, v1alpha1.PhaseReady),
		node(nodeName, "a", corev1.ConditionTrue, nodeAddress)
	greedy := kubeletClient(t, "csr", nodeName)
	greedy.Spec.ExpirationSeconds = new(int32(10 * 365 * 24 * 3600))
	for name, test := range map[string]struct {
		csr   *certificatesv1.CertificateSigningRequest
		asked bool
	}{
		"a request for a node that has its certificate": {kubeletClient(t, "csr", nodeName), false},
		"a request that is wrong by itself":             {greedy, false},
		"a request that the cluster calls wrong":        {kubeletServing(t, "csr", nodeName, "10.9.9.9"), true},
		"a request that is right":                       {kubeletServing(t, "csr", nodeName, nodeAddress), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, ready, serving, test.csr)
			w.decide(t, "csr")
			if (*w.asked > 0) != test.asked {
				t.Errorf("asked %d times", *w.asked)
			}
		})
	}
}

// A denial is final, so the operator must not deny a request because of a Node that was deleted but is still in the
// cache.
func TestACachedNodeDeniesNothing(t *testing.T) {
	t.Parallel()
	csr := daemonFirst(t, "csr", nodeName, "a")
	joining := instance("a", nodeName, nodeAddress, v1alpha1.PhaseBootstrapping)
	w := newStaleWorld(t, interceptor.Funcs{},
		[]client.Object{joining, csr, node(nodeName, "b", corev1.ConditionTrue)}, []client.Object{joining})
	if condition, _ := w.decide(t, "csr"); condition != "Approved WICDAutoApproved" {
		t.Errorf("decided %q", condition)
	}
}

func TestADecisionThatComesTooLateIsMadeAnew(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	w := newStaleWorld(t, interceptor.Funcs{SubResourceUpdate: func(context.Context, client.Client, string,
		client.Object, ...client.SubResourceUpdateOption) error {
		return apierrors.NewConflict(resource, "csr", errors.New("changed"))
	}}, []client.Object{instance("a", nodeName, nodeAddress, v1alpha1.PhaseBootstrapping),
		kubeletClient(t, "csr", nodeName)}, nil)
	condition, result := w.decide(t, "csr")
	if condition != "" || result.RequeueAfter == 0 || len(w.heard()) != 0 {
		t.Errorf("decided %q, reconciled again after %s", condition, result.RequeueAfter)
	}
}

func TestAFailureToReadIsNoDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, instance("a", nodeName, nodeAddress, v1alpha1.PhaseReady),
		node(nodeName, "a", corev1.ConditionTrue, nodeAddress),
		kubeletServing(t, "csr", nodeName, nodeAddress))
	w.options.ServiceNetwork = func(context.Context) (netip.Prefix, error) {
		return netip.Prefix{},
			errors.New("no network")
	}
	if _, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "csr"}}); err == nil {
		t.Error("no error")
	}
}

// A problem of the cluster may last long. So the request is retried at constant intervals, not at growing ones.
func TestAServingRequestWaitsWhileTheClustersAddressesAreNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, instance("a", nodeName, nodeAddress, v1alpha1.PhaseReady),
		node(nodeName, "a", corev1.ConditionTrue, nodeAddress),
		kubeletServing(t, "csr", nodeName, nodeAddress))
	w.options.Reserved = func(context.Context) ([]netip.Prefix, []string, error) {
		return nil, nil, errors.Join(contract.NewProblem(contract.ReasonClusterFactsIncomplete, "no DNS"))
	}
	for range 2 {
		condition, result := w.decide(t, "csr")
		if said := w.heard(); condition != "" || result.RequeueAfter != recheck || len(said) > 0 {
			t.Errorf("decided %q, reconciled again after %s, events %v", condition, result.RequeueAfter, said)
		}
	}
}

func TestARequestThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	if _, err := newWorld(t).Reconcile(t.Context(),
		ctrl.Request{NamespacedName: client.ObjectKey{Name: "csr"}}); err != nil {
		t.Error(err)
	}
}

func TestNewsWakeTheRequestsThatTheyConcern(t *testing.T) {
	t.Parallel()
	ours := instance("a", nodeName, nodeAddress, v1alpha1.PhaseReady)
	stale := node("old", "", corev1.ConditionFalse, nodeAddress)
	w := newWorld(t, ours, kubeletServing(t, "serving", nodeName, nodeAddress), kubeletClient(t, "client", nodeName),
		kubeletClient(t, "foreign", "linux-0"))
	names := func(requests []ctrl.Request) string {
		var all []string
		for _, r := range requests {
			all = append(all, r.Name)
		}
		slices.Sort(all)
		return strings.Join(slices.Compact(all), " ")
	}
	if got := names(w.news(t.Context(), ours)); got != "client serving" {
		t.Errorf("the instance triggers %q", got)
	}
	if got := names(w.news(t.Context(), node(nodeName, "a", corev1.ConditionTrue))); got != "client serving" {
		t.Errorf("the node triggers %q", got)
	}
	if got := names(w.news(t.Context(), stale)); got != "serving" {
		t.Errorf("a node with the same address triggers %q", got)
	}
}

func TestOnlyNewsThatMatterWakeAnything(t *testing.T) {
	t.Parallel()
	before := node(nodeName, "a", corev1.ConditionTrue, nodeAddress)
	heartbeat := before.DeepCopy()
	heartbeat.Status.Images, heartbeat.ResourceVersion = []corev1.ContainerImage{{Names: []string{"x"}}}, "2"
	silent := node(nodeName, "a", corev1.ConditionUnknown, nodeAddress)
	if nodeNews().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: heartbeat}) {
		t.Error("a heartbeat triggers a reconcile")
	}
	if !nodeNews().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: silent}) {
		t.Error("a node that becomes NotReady triggers no reconcile")
	}
	old := instance("a", nodeName, nodeAddress, v1alpha1.PhaseDelivering)
	same, next := old.DeepCopy(), instance("a", nodeName, nodeAddress, v1alpha1.PhaseBootstrapping)
	same.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Message: "sending"}}
	if instanceNews().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: same}) {
		t.Error("a new message triggers a reconcile")
	}
	if !instanceNews().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: next}) {
		t.Error("a new phase triggers no reconcile")
	}
	found := old.DeepCopy()
	found.Status.Host = &v1alpha1.HostInfo{Address: nodeAddress}
	if !instanceNews().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: found}) {
		t.Error("a recorded address of a host triggers no reconcile")
	}
	decided := kubeletClient(t, "csr", nodeName)
	decided.Status.Certificate = []byte("x")
	if claiming(OperatorUser(namespace)).Create(event.CreateEvent{Object: decided}) ||
		!claiming(OperatorUser(namespace)).Create(event.CreateEvent{Object: kubeletClient(t, "csr", nodeName)}) {
		t.Error("only pending requests must trigger a reconcile")
	}
	if claiming(OperatorUser(namespace)).Delete(event.DeleteEvent{Object: kubeletClient(t, "csr", nodeName)}) {
		t.Error("a deleted request triggers a reconcile")
	}
}

// On many clusters, no configuration contains the pod networks. In this case, each Node lists the network of its pods.
func TestA54_AnAddressOfPodsIsNoNodes(t *testing.T) {
	t.Parallel()
	const pod = "10.200.3.7"
	ready := instance("a", nodeName, nodeAddress, v1alpha1.PhaseReady)
	for name, test := range map[string]struct {
		cidr, condition string
		given           bool
	}{
		"of another node's pods":           {cidr: "10.200.3.0/24"},
		"of pods on IPv6, too":             {cidr: "fd00::/64", condition: "Approved WMCOApprove"},
		"given by the user":                {cidr: "10.200.3.0/24", condition: "Approved WMCOApprove", given: true},
		"of a node whose prefix is broken": {cidr: "broken", condition: "Approved WMCOApprove"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			linux := node("linux", "", corev1.ConditionTrue, "10.0.0.50")
			linux.Annotations, linux.Spec.PodCIDRs = nil, []string{test.cidr}
			own := ready.DeepCopy()
			if test.given {
				own.Spec.Addresses = []string{pod}
			}
			w := newWorld(t, kubeletServing(t, "csr", nodeName, nodeAddress, pod), own, linux,
				node(nodeName, "a", corev1.ConditionTrue, nodeAddress, pod))
			if condition, _ := w.decide(t, "csr"); condition != test.condition {
				t.Errorf("condition %q", condition)
			}
		})
	}
}

// A listed host that has not joined has no kubelet yet. The address in the host's entry must be reserved for the
// host, so that no other node can get a certificate for the address.
func TestA54_AnAddressOfAListedHostIsItsOwnBeforeItHasJoined(t *testing.T) {
	t.Parallel()
	const listed = "10.0.0.22"
	for name, test := range map[string]struct {
		waits     func(waiting *v1alpha1.WindowsInstance)
		condition string
	}{
		"by its entry":     {waits: func(i *v1alpha1.WindowsInstance) { i.Spec.Address = listed }},
		"by the cloud":     {waits: func(i *v1alpha1.WindowsInstance) { i.Spec.Addresses = []string{listed} }},
		"as node address":  {waits: func(i *v1alpha1.WindowsInstance) { i.Spec.NodeIP = listed }},
		"in another way":   {waits: func(i *v1alpha1.WindowsInstance) { i.Spec.Address = "::ffff:" + listed }},
		"while it leaves":  {waits: func(i *v1alpha1.WindowsInstance) { i.Spec.Address = listed; leave(i) }},
		"by itself, alone": {waits: sayAddress(listed), condition: "Approved WMCOApprove"},
		"in another namespace": {waits: func(i *v1alpha1.WindowsInstance) {
			i.Spec.Address, i.Namespace = listed, "default"
		}, condition: "Approved WMCOApprove"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waiting := instance("b", "", "win-b.corp.example", v1alpha1.PhasePreflight)
			test.waits(waiting)
			w := newWorld(t, kubeletServing(t, "csr", nodeName, nodeAddress, listed), waiting,
				instance("a", nodeName, nodeAddress, v1alpha1.PhaseReady),
				node(nodeName, "a", corev1.ConditionTrue, nodeAddress, listed))
			if condition, _ := w.decide(t, "csr"); condition != test.condition {
				t.Errorf("condition %q, events %q", condition, w.heard())
			}
		})
	}
}

// leave marks an instance as deleted.
func leave(i *v1alpha1.WindowsInstance) {
	i.DeletionTimestamp, i.Finalizers = &metav1.Time{Time: time.Unix(0, 0)}, []string{contract.InstanceFinalizer}
}

// sayAddress returns an edit that makes a host report an address as its own.
func sayAddress(address string) func(i *v1alpha1.WindowsInstance) {
	return func(i *v1alpha1.WindowsInstance) { i.Status.Host = &v1alpha1.HostInfo{NodeIP: address} }
}

func TestAHostsFirstServingCertificateWaitsForItsName(t *testing.T) {
	t.Parallel()
	joining := instance("a", "", nodeAddress, v1alpha1.PhaseConfirming)
	w := newWorld(t, kubeletServing(t, "csr", nodeName, nodeAddress), joining,
		node(nodeName, "a", corev1.ConditionTrue, nodeAddress))
	if condition, _ := w.decide(t, "csr"); condition != "" || len(w.heard()) > 0 {
		t.Errorf("before: condition %q", condition)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(joining), joining); err != nil {
		t.Fatal(err)
	}
	joining.Status.NodeName = nodeName
	if err := w.client.Status().Update(t.Context(), joining); err != nil {
		t.Fatal(err)
	}
	if got := w.news(t.Context(), joining); len(got) == 0 {
		t.Error("the new node name does not trigger the request")
	}
	if condition, _ := w.decide(t, "csr"); condition != "Approved WMCOApprove" {
		t.Errorf("after: condition %q, events %q", condition, w.heard())
	}
}

// instant returns a time, or nil if seconds is 0.
func instant(seconds int64) *metav1.Time {
	if seconds == 0 {
		return nil
	}
	return new(metav1.Unix(seconds, 0))
}

// Two hosts are listed by DNS names. The kubelet of one host also reports the other host's address as its own.
func TestA54_AKubeletKeepsNoOtherFromItsServingCertificate(t *testing.T) {
	t.Parallel()
	const approved = "Approved WMCOApprove"
	for name, test := range map[string]struct {
		reached, other string // where the operator reached each host
		pods           string // the pod network of the other host
		at, otherAt    int64  // when the operator reached each host
		port           int32  // the SSH port of the other host
		condition      string
	}{
		"it was reached there":      {reached: nodeAddress, other: "10.0.0.22", condition: approved},
		"only it was reached, ever": {reached: nodeAddress, condition: approved},
		"both were reached there":   {reached: nodeAddress, other: nodeAddress},
		"both were reached there, the other earlier, same port": {reached: nodeAddress, other: nodeAddress, at: 2,
			otherAt: 1, condition: approved},
		"both were reached there, the other before that was noted": {reached: nodeAddress, other: nodeAddress, at: 2,
			condition: approved},
		"both were reached there, the other later": {reached: nodeAddress, other: nodeAddress, at: 1, otherAt: 2},
		"both were reached there, the other before it was noted of this one": {reached: nodeAddress, other: nodeAddress,
			otherAt: 2},
		"both were reached there, the other earlier, by another port": {reached: nodeAddress, other: nodeAddress, at: 2,
			otherAt: 1, port: 2222},
		"only the other was reached there":    {reached: "10.0.0.33", other: nodeAddress},
		"neither was reached there":           {reached: "10.0.0.33", other: "10.0.0.22"},
		"it was reached there, among pods":    {reached: nodeAddress, pods: "10.0.0.0/24"},
		"it was reached there, far from pods": {reached: nodeAddress, pods: "10.0.1.0/24", condition: approved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := instance("a", nodeName, "win-a.corp.example", v1alpha1.PhaseReady)
			own.Status.Host = &v1alpha1.HostInfo{NodeIP: nodeAddress, Address: test.reached, Time: instant(test.at)}
			other := instance("b", "win-b", "win-b.corp.example", v1alpha1.PhaseReady)
			other.Status.Host = &v1alpha1.HostInfo{Address: test.other, Time: instant(test.otherAt)}
			other.Spec.Port = cmp.Or(test.port, own.Spec.Port)
			otherNode := node("win-b", "b", corev1.ConditionTrue, "10.0.0.22", nodeAddress)
			if test.pods != "" {
				otherNode.Spec.PodCIDRs = []string{test.pods}
			}
			w := newWorld(t, kubeletServing(t, "csr", nodeName, nodeAddress), own, other, otherNode,
				node(nodeName, "a", corev1.ConditionTrue, nodeAddress))
			if condition, _ := w.decide(t, "csr"); condition != test.condition {
				t.Errorf("condition %q, events %q", condition, w.heard())
			}
		})
	}
}

// The host joined while an operator was running that did not record the host's address. A second entry for the same
// host is refused. This second entry must not block the host's certificate.
func TestA54_ASecondEntryForAHostKeepsNoCertificateFromIt(t *testing.T) {
	t.Parallel()
	own := instance("a", nodeName, "win-a.corp.example", v1alpha1.PhaseReady)
	own.Status.Host = &v1alpha1.HostInfo{NodeIP: nodeAddress}
	second := instance("b", "", nodeAddress, v1alpha1.PhasePreflight)
	w := newWorld(t, kubeletServing(t, "csr", nodeName, nodeAddress), own, second,
		node(nodeName, "a", corev1.ConditionTrue, nodeAddress))
	if condition, _ := w.decide(t, "csr"); condition != "Approved WMCOApprove" {
		t.Errorf("condition %q, events %q", condition, w.heard())
	}
}
