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

// operatorUser is who the operator is to the API server.
const operatorUser = "system:serviceaccount:" + contract.OperatorNamespace + ":" + contract.OperatorServiceAccount

// This file's name sorts last, so its tests are last in the lines for what tests share: they look back at what
// all others made the operator and the daemons do.
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
	// Rights in a namespace are created after the namespace, and the operator may check in between. Its right to
	// see the namespace doesn't change this.
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
		t.Logf("only a part of the tests ran, so this proves nothing about these rights: %v", unused)
		return
	}
	for _, right := range unused {
		// A daemon watches for a manifest only if the requested one does not exist. The operator never requests
		// such a manifest: internal/daemon/reconcile tests this.
		if right.daemon && right.resource == "configmaps" && right.verb == "watch" {
			continue
		}
		t.Errorf("no test needs this right: %v", right)
	}
}

// oldMirrors creates and deletes an ImageContentSourcePolicy. Before the operator takes its mirrors from the nodes, it
// looks whether the kind is still there.
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
	s.await(t, "the mirrors to be taken back", func(context.Context) (bool, string, error) {
		now := s.config(t).Status.DesiredRevision
		return now == before, now, nil
	})
}

// This checks the operator's output of all tests.
func TestA35_NothingThatWasToldIsASecret(t *testing.T) {
	inLine(t, &theShared.line, &theCloud.line)()
	for _, s := range []*stage{theShared.stage, theCloud.stage} {
		if s == nil {
			continue // only a part of the tests ran, and none with Machines
		}
		s.nothingToldIsSecret(t, s.account(t, contract.OperatorNamespace, contract.BootstrapServiceAccount))
	}
}

// nothingToldIsSecret searches the operator's output. bootstrap is a ServiceAccount whose tokens joins use.
func (s *stage) nothingToldIsSecret(t *testing.T, bootstrap *rest.Config) {
	t.Helper()
	secrets := s.secrets(t, bootstrap)
	for place, text := range s.said(t) {
		for what, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s stands in %s", what, place)
			}
		}
	}
}

// partial says that this is not a run of all tests.
func partial() bool {
	return slices.ContainsFunc([]string{"test.run", "test.skip"},
		func(name string) bool { return flag.Lookup(name).Value.String() != "" })
}

// observed is a request of the operator or of a daemon, or the approval of a signer that is implied
// in one.
type observed struct {
	cluster.Request
	daemon bool
}

// observe reads what the operator and the daemons of a stage asked of the API server.
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
		// Tests also act as daemons, and are refused. But only the daemon itself has its user agent.
		daemon := strings.HasPrefix(r.User, contract.DaemonUserPrefix) &&
			strings.HasPrefix(r.UserAgent, contract.ServiceDaemon+"/")
		if !daemon && (r.User != operatorUser || strings.HasPrefix(r.UserAgent, intruder)) {
			continue
		}
		all = append(all, observed{Request: r, daemon: daemon})
		switch {
		case r.Subresource == "approval":
			// Admission asks for this right, which no request shows.
			implied := cluster.Request{User: r.User, Verb: "approve", Group: r.Group, Resource: "signers",
				Name: signers[r.Name]}
			all = append(all, observed{Request: implied})
		case strings.Contains(r.URI, "sendInitialEvents=true"):
			// If an API server doesn't stream existing objects, a list precedes the same watch.
			r.Verb = "list"
			all = append(all, observed{Request: r, daemon: daemon})
		}
	}
	return all
}

// right is the smallest part of a rule.
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

// shipped reads which rights the operator and the daemons have, as they were applied.
func shipped(t *testing.T, s *stage) (all []right) {
	t.Helper()
	all = append(s.rights(t, right{}, contract.OperatorServiceAccount),
		s.rights(t, right{daemon: true}, "system-wicd-nodes", "windows-daemon-events")...)
	for _, r := range s.rights(t, right{daemon: true}, contract.ServicesReaderRole) {
		// One version is like another; and what belongs to a manifest is not read by a host that was
		// given it when it joined.
		if strings.HasPrefix(r.name, contract.ServicesConfigMapPrefix) {
			r.name = ""
		}
		all = append(all, r)
	}
	if len(all) < 20 {
		t.Fatalf("only %d rights were found: are the roles named otherwise?", len(all))
	}
	return all
}

// rights returns the rights of the Roles and ClusterRoles with some names, as they were applied.
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

// spread takes rules apart.
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

// unused are the rights that no request needed.
func unused(rights []right, seen []observed) (left []right) {
	for _, r := range rights {
		if !slices.ContainsFunc(seen, r.covers) {
			left = append(left, r)
		}
	}
	return left
}

// scrape reads the operator's metrics as a user with the right, as a user without it, and without a user.
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
		// controller-runtime's words for a token that can't be reviewed.
		"who makes one up": {"eyJhbGciOiJub25lIn0.e30.", http.StatusInternalServerError},
	} {
		code, body := s.metrics(t, want.token)
		if code != want.code {
			t.Errorf("%s gets %d, want %d", who, code, want.code)
		}
		if told := strings.Contains(body, "controller_runtime_reconcile_total"); told != (code == http.StatusOK) {
			t.Errorf("%s is told the metrics: %v", who, told)
		}
	}
}

// metrics are what the operator answers to a bearer of a token.
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
	// The lab has no CA for this certificate.
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // of this machine
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

// renewal lets ten of the fourteen days of a daemon's certificate pass.
func (s *stage) renewal(t *testing.T) {
	h := s.Fleet.Hosts[0]
	services := h.Machine.Host().Services
	before := hostFile(t, h, contract.PathDaemonCertificate)
	h.Machine.SetClockOffset(10 * 24 * time.Hour)
	if err := errors.Join(services.Stop(t.Context(), contract.ServiceDaemon),
		services.Start(t.Context(), contract.ServiceDaemon)); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the certificate to be another", func(context.Context) (bool, string, error) {
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
		t.Error("the daemon did not ask for it itself")
	}
	s.ready(t, h)
}

// retirement publishes another version, and the operator corrects another client's change of the manifest.
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
		return err == nil && i.Status.Revision != old && i.Status.Reason == string(contract.ReasonNodeReady), "", err
	})
	s.await(t, "the old manifest to be retired", func(ctx context.Context) (bool, string, error) {
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
	s.await(t, "its label to be back", func(ctx context.Context) (bool, string, error) {
		again := &corev1.ConfigMap{}
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(manifest), again)
		return len(again.Labels) > 0, "", client.IgnoreNotFound(err)
	})
}

// fetches gives the operator another payload, which a daemon fetches from the operator, who looks
// up whose certificates to accept.
func (s *stage) fetches(t *testing.T) {
	h := s.Fleet.Hosts[0]
	old, dir := s.instance(t, h).Status.Revision, filepath.Join(s.Dir, "payload-next")
	must(t, scene.ChangePayload(dir, s.PayloadDir(), scene.Change{Versions: map[string]string{kubeletExe: next}}))
	must(t, s.Upgrade(t.Context(), "", dir))
	s.await(t, "the node to be at the next version", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, h)
		return err == nil && i.Status.Revision != old && i.Status.Reason == string(contract.ReasonNodeReady), "", err
	})
}

// repeatedEvent makes the operator refuse the same request twice, which is one event that is
// counted.
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

// daemonSetPod lets a host leave that has a pod of a DaemonSet, which no drain waits for.
//
// It is for Linux, so that the operator reports it at its DaemonSet, soon after it begins to lead.
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
			// Its controller would replace the pod below with a pod that no scheduler assigns to this node.
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
