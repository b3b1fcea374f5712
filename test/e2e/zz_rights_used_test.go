package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/scene"
)

// operatorUser is the operator's user name in the API server.
const operatorUser = "system:serviceaccount:" + contract.OperatorNamespace + ":" + contract.OperatorServiceAccount

// The test compares the operator's and the daemons' rights with the requests that they sent during all tests: every
// right must be used, and no request may be refused. The file's name sorts last, so that this test runs last on the
// shared stages.
func TestA36_EveryRightIsUsedAndNoneIsMissing(t *testing.T) {
	afterAll := inLine(t, &theShared.line, &theCloud.line)
	var seen []observed
	var all []right
	t.Run("what no other test does", func(t *testing.T) {
		o := options(1)
		o.Metrics, o.Arguments, o.Settings = true, []string{"--manifest-retention", "2s"}, nil
		s := own(t, o)
		s.join(t, s.hosts(t, 1)...)
		t.Run("metrics are for who may read them", s.scrape)
		t.Run("a daemon renews its certificate before it ends", s.renewal)
		t.Run("a manifest that no node uses is retired", s.retirement)
		t.Run("a daemon fetches what the next version has", s.fetches)
		t.Run("an event that repeats is counted", s.repeatedEvent)
		t.Run("a mirror set of the old kind is deleted", s.oldMirrors)
		t.Run("pods of daemon sets don't hold a host back", s.daemonSetPod)
		t.Run("a host gets a command to join by itself", s.invitation)
		seen, all = observe(t, s), shipped(t, s)
	})
	afterAll()
	seen = append(seen, observe(t, theShared.stage)...)
	if partial() {
		if theCloud.stage != nil {
			seen = append(seen, observe(t, theCloud.stage)...)
		}
	} else {
		seen = append(seen, observe(t, startedCloud(t))...)
	}
	// A Role in a namespace can be created only after the namespace. If the operator checks its rights in between, it
	// is refused. Its right to read the namespace doesn't prevent this.
	rightsComeLater := func(r observed) bool {
		return r.Namespace == clusterAPI && r.Resource != "namespaces" && r.User == operatorUser
	}
	came := slices.IndexFunc(seen, func(r observed) bool {
		return rightsComeLater(r) && r.Code != http.StatusForbidden
	})
	for i, r := range seen {
		if r.Code == http.StatusForbidden && (i >= came || !rightsComeLater(r)) {
			t.Errorf("%s was refused to %s %s", r.User, r.Verb, r.URI)
		}
	}
	unused := unused(all, seen)
	if partial() {
		t.Logf("only some of the tests ran, so this run can't show whether these rights are needed: %v", unused)
		return
	}
	for _, right := range unused {
		t.Errorf("no test needs this right: %v", right)
	}
}

// oldMirrors creates and deletes an ImageContentSourcePolicy. Before the operator removes the mirrors from the nodes,
// it checks whether the kind still exists.
func (s *stage) oldMirrors(t *testing.T) {
	before := s.config(t).Status.DesiredRevision
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operator.openshift.io/v1alpha1", "kind": "ImageContentSourcePolicy",
		"metadata": map[string]any{"name": "old"}, "spec": map[string]any{"repositoryDigestMirrors": []any{
			map[string]any{"source": "quay.io/old", "mirrors": []any{"m.example/old"}}}}}}
	must(t, s.Client.Create(t.Context(), set))
	s.await(t, "the mirrors to be published", func(context.Context) (bool, string, error) {
		now := s.config(t).Status.DesiredRevision
		return now != before, now, nil
	})
	must(t, s.Client.Delete(t.Context(), set))
	s.await(t, "the mirrors to be removed", func(context.Context) (bool, string, error) {
		now := s.config(t).Status.DesiredRevision
		return now == before, now, nil
	})
}

// The operator's output of all tests must contain no secret.
func TestA35_NothingThatWasToldIsASecret(t *testing.T) {
	inLine(t, &theShared.line, &theCloud.line)()
	for _, s := range []*stage{theShared.stage, theCloud.stage} {
		if s == nil {
			continue // only some of the tests ran, and none of them had Machines
		}
		s.nothingToldIsSecret(t, s.account(t, contract.OperatorNamespace, contract.BootstrapServiceAccount))
	}
}

// nothingToldIsSecret searches the operator's output for secrets. bootstrap is a ServiceAccount whose tokens joins use.
func (s *stage) nothingToldIsSecret(t *testing.T, bootstrap *rest.Config) {
	t.Helper()
	secrets := s.secrets(t, bootstrap)
	for place, text := range s.said(t) {
		for what, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s appears in %s", what, place)
			}
		}
	}
}

// partial reports whether only some of the tests run.
func partial() bool {
	return slices.ContainsFunc([]string{"test.run", "test.skip"},
		func(name string) bool { return flag.Lookup(name).Value.String() != "" })
}

// observed is one request of the operator or of a daemon. The approval of a certificate request also counts as the
// implied use of a signer.
type observed struct {
	cluster.Request
	daemon bool
}

// observe reads the requests of a stage's operator and daemons from the audit log.
func observe(t *testing.T, s *stage) (all []observed) {
	t.Helper()
	signers := map[string]string{}
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := s.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, csr := range list.Items {
		signers[csr.Name] = csr.Spec.SignerName
	}
	for r, err := range s.Requests() {
		if err != nil {
			t.Fatal(err)
		}
		// Tests also send requests as daemons, and these requests are refused. Only the real daemon has its user
		// agent.
		daemon := strings.HasPrefix(r.User, contract.DaemonUserPrefix) &&
			strings.HasPrefix(r.UserAgent, contract.ServiceDaemon+"/")
		if !daemon && (r.User != operatorUser || strings.HasPrefix(r.UserAgent, intruder)) {
			continue
		}
		all = append(all, observed{Request: r, daemon: daemon})
		switch {
		case r.Subresource == "approval":
			// Approving a certificate request also needs a right on the signer. The API server's admission checks it,
			// so the audit log shows no request for it.
			implied := cluster.Request{User: r.User, Verb: "approve", Group: r.Group, Resource: "signers",
				Name: signers[r.Name]}
			all = append(all, observed{Request: implied})
		case strings.Contains(r.URI, "sendInitialEvents=true"):
			// If an API server doesn't stream existing objects, the watch starts with a list.
			r.Verb = "list"
			all = append(all, observed{Request: r, daemon: daemon})
		}
	}
	return all
}

// right is one verb on one resource.
type right struct {
	daemon                                 bool
	namespace, group, resource, name, verb string
}

func (r right) String() string {
	who := "operator"
	if r.daemon {
		who = "daemon"
	}
	return fmt.Sprintf("%s: %s %s.%s %s in %s", who, r.verb, r.resource, cmp.Or(r.group, "core"),
		cmp.Or(r.name, "of any name"), cmp.Or(r.namespace, "the cluster"))
}

func (r right) covers(o observed) bool {
	resource := o.Resource
	if o.Subresource != "" {
		resource += "/" + o.Subresource
	}
	return r.daemon == o.daemon && r.group == o.Group && r.resource == resource && r.verb == o.Verb &&
		(r.name == "" || r.name == o.Name) && (r.namespace == "" || r.namespace == o.Namespace)
}

// shipped reads the rights of the operator and the daemons from the cluster.
func shipped(t *testing.T, s *stage) (all []right) {
	t.Helper()
	all = append(s.rights(t, right{}, contract.OperatorServiceAccount),
		s.rights(t, right{daemon: true}, "system-wicd-nodes", "windows-daemon-events")...)
	for _, r := range s.rights(t, right{daemon: true}, contract.ServicesReaderRole) {
		// Revisions have different names, so only the prefix counts. A host that has just joined doesn't read its
		// manifest, because the join has already written it.
		if strings.HasPrefix(r.name, contract.ServicesConfigMapPrefix) {
			r.name = ""
		}
		all = append(all, r)
	}
	if len(all) < 20 {
		t.Fatalf("only %d rights were found: do the Roles have other names?", len(all))
	}
	return all
}

// rights reads the rights of the Roles and ClusterRoles with the given names from the cluster.
func (s *stage) rights(t *testing.T, base right, names ...string) (all []right) {
	t.Helper()
	cluster, namespaced := &rbacv1.ClusterRoleList{}, &rbacv1.RoleList{}
	for _, list := range []client.ObjectList{cluster, namespaced} {
		must(t, s.Client.List(t.Context(), list))
	}
	for _, role := range cluster.Items {
		if slices.Contains(names, role.Name) {
			all = append(all, spread(base, role.Rules)...)
		}
	}
	for _, role := range namespaced.Items {
		if slices.Contains(names, role.Name) {
			base.namespace = role.Namespace
			all = append(all, spread(base, role.Rules)...)
		}
	}
	return all
}

// spread splits rules into single rights.
func spread(base right, rules []rbacv1.PolicyRule) (all []right) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, base.group = range rule.APIGroups {
			for _, base.resource = range rule.Resources {
				for _, base.name = range names {
					for _, base.verb = range rule.Verbs {
						all = append(all, base)
					}
				}
			}
		}
	}
	return all
}

// unused returns the rights that no request used.
func unused(rights []right, seen []observed) (left []right) {
	for _, r := range rights {
		if !slices.ContainsFunc(seen, r.covers) {
			left = append(left, r)
		}
	}
	return left
}

// scrape reads the operator's metrics as a user with the right, as a user without the right, and without credentials.
func (s *stage) scrape(t *testing.T) {
	s.put(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	})
	for _, name := range []string{"scraper", "passer-by"} {
		s.put(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}})
	}
	s.put(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "scraper"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault,
			Name: "scraper"}},
	})
	for who, want := range map[string]struct {
		token string
		code  int
	}{
		"who may read them": {s.account(t, metav1.NamespaceDefault, "scraper").BearerToken, http.StatusOK},
		"somebody else":     {s.account(t, metav1.NamespaceDefault, "passer-by").BearerToken, http.StatusForbidden},
		"nobody":            {"", http.StatusUnauthorized},
		// controller-runtime answers 500 to a token that can't be reviewed.
		"who makes one up": {"eyJhbGciOiJub25lIn0.e30.", http.StatusInternalServerError},
	} {
		code, body := s.metrics(t, want.token)
		if code != want.code {
			t.Errorf("%s gets %d, want %d", who, code, want.code)
		}
		if told := strings.Contains(body, "controller_runtime_reconcile_total"); told != (code == http.StatusOK) {
			t.Errorf("%s can read the metrics: %v", who, told)
		}
	}
}

// metrics requests the operator's metrics with a bearer token.
func (s *stage) metrics(t *testing.T, token string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Operator.Metrics+"/metrics",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// Don't verify the certificate, because the lab has no CA for it.
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server is on this machine
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// renewal sets a host's clock ahead by ten of the fourteen days of the daemon's certificate. The daemon must renew its
// certificate.
func (s *stage) renewal(t *testing.T) {
	h := s.Fleet.Hosts[0]
	services := h.Machine.Host().Services
	before := hostFile(t, h, contract.PathDaemonCertificate)
	h.Machine.SetClockOffset(10 * 24 * time.Hour)
	if err := errors.Join(services.Stop(t.Context(), contract.ServiceDaemon),
		services.Start(t.Context(), contract.ServiceDaemon)); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the daemon to renew its certificate", func(context.Context) (bool, string, error) {
		after := hostFile(t, h, contract.PathDaemonCertificate)
		return !bytes.Equal(before, after), "", nil
	})
	h.Machine.SetClockOffset(0)
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := s.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	own := func(csr certificatesv1.CertificateSigningRequest) bool {
		return csr.Spec.Username == contract.DaemonUserPrefix+h.Name && len(csr.Status.Certificate) > 0
	}
	if !slices.ContainsFunc(list.Items, own) {
		t.Error("the daemon did not request its new certificate with its own identity")
	}
	s.ready(t, h)
}

// retirement publishes a new revision, so that the operator deletes the old manifest. Then it removes the labels of the
// new manifest, and the operator must restore them.
func (s *stage) retirement(t *testing.T) {
	h := s.Fleet.Hosts[0]
	old := s.instance(t, h).Status.Revision
	network := &unstructured.Unstructured{}
	network.SetAPIVersion("operator.openshift.io/v1")
	network.SetKind("Network")
	network.SetName("cluster")
	patch := `{"spec":{"defaultNetwork":{"ovnKubernetesConfig":{"hybridOverlayConfig":{"hybridOverlayVXLANPort":9898}}}}}`
	if err := s.Client.Patch(t.Context(), network, merge(patch)); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the node to reach another version", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, h)
		return err == nil && i.Status.Revision != old && i.Status.Reason() == string(contract.ReasonNodeReady), "", err
	})
	s.await(t, "the operator to delete the old manifest", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace,
			Name: contract.ServicesConfigMapPrefix + old}, &corev1.ConfigMap{})
		return apierrors.IsNotFound(err), "", client.IgnoreNotFound(err)
	})
	manifest := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: contract.OperatorNamespace,
		Name:      contract.ServicesConfigMapPrefix + s.instance(t, h).Status.Revision,
	}}
	if err := s.Client.Patch(t.Context(), manifest, merge(`{"metadata":{"labels":null}}`)); err != nil {
		t.Fatal(err)
	}
	// A manifest is immutable, so the operator deletes it and creates it again.
	s.await(t, "the operator to restore the manifest's label", func(ctx context.Context) (bool, string, error) {
		again := &corev1.ConfigMap{}
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(manifest), again)
		return len(again.Labels) > 0, "", client.IgnoreNotFound(err)
	})
}

// fetches gives the operator another payload. A daemon downloads it from the operator. For this, the operator reads
// which CA signs the client certificates that it accepts.
func (s *stage) fetches(t *testing.T) {
	h := s.Fleet.Hosts[0]
	old, dir := s.instance(t, h).Status.Revision, filepath.Join(s.Dir, "payload-next")
	must(t, scene.ChangePayload(dir, s.PayloadDir(), scene.Change{Versions: map[string]string{kubeletExe: next}}))
	must(t, s.Upgrade(t.Context(), "", dir))
	s.await(t, "the node to be at the next version", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, h)
		return err == nil && i.Status.Revision != old && i.Status.Reason() == string(contract.ReasonNodeReady), "", err
	})
}

// repeatedEvent makes the operator refuse the same request twice. The operator writes one event and increases its
// count.
func (s *stage) repeatedEvent(t *testing.T) {
	h := s.Fleet.Hosts[0]
	const name = "refused-twice"
	if err := s.ask(t, name, kubeletClient(s.asker(t, "insistent"), h.Name)); err != nil {
		t.Fatal(err)
	}
	s.looked(t, name, "CSRRequesterWrong")
	// A change of a Node makes the operator check the requests for it again.
	node := s.node(t, h)
	patch := client.MergeFrom(node.DeepCopy())
	node.Status.Addresses = append(node.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: h.Name + ".example.com"})
	if err := s.Client.Status().Patch(t.Context(), node, patch); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the event to be counted", func(ctx context.Context) (bool, string, error) {
		list := &eventsv1.EventList{}
		err := s.Client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault))
		counted := func(e eventsv1.Event) bool {
			return e.Regarding.Name == name && e.Series != nil &&
				e.Series.Count > 1
		}
		return slices.ContainsFunc(list.Items, counted), "", err
	})
}

// daemonSetPod removes a host that has a pod of a DaemonSet. The drain must ignore this pod.
//
// The pod is for Linux, so that the operator reports it in an event about its DaemonSet, soon after the operator
// becomes the leader.
func (s *stage) daemonSetPod(t *testing.T) {
	h := s.Fleet.Hosts[0]
	labels := map[string]string{"app": "agent"}
	pod := corev1.PodSpec{
		Containers:  []corev1.Container{{Name: "c", Image: "mcr.microsoft.com/windows/nanoserver:ltsc2022"}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		OS:          &corev1.PodOS{Name: corev1.Linux},
	}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
			// With another strategy, the DaemonSet's controller would replace the pod below, and no scheduler would
			// bind the new pod to this node.
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		},
	}
	s.put(t, set)
	pod.NodeName = h.Name
	s.put(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: "agent-" + h.Name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set,
				appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}},
		Spec: pod,
	})
	if err := s.Operator.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Operator.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the pod for Linux to be reported", func(ctx context.Context) (bool, string, error) { // A73
		told := &eventsv1.EventList{}
		err := s.Client.List(ctx, told, client.InNamespace(set.Namespace))
		fits := meta.FindStatusCondition(s.instance(t, h).Status.Conditions, v1alpha1.ConditionWorkloadsFit)
		return slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool {
			return e.Reason == string(contract.ReasonLinuxPodPlaced) && e.Regarding.UID == set.UID
		}) && fits != nil && fits.Status == metav1.ConditionFalse, fmt.Sprint(fits), err
	})
	s.drop(t, h)
	s.gone(t, h)
}
