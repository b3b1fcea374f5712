package csr

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/scheme"
)

// strangers is the number of pending requests of other machines before the hosts' requests are created.
const strangers = 300

// stage is a cluster with the installed manifests. The controller runs with the operator's own account.
type stage struct {
	t     *testing.T
	lab   *cluster.Cluster
	admin client.Client
	spent *UsedTokens
}

// This test covers all certificate requests of a host, and requests of attackers, with a real API server, its
// authorizers and the real signer.
func TestA07_ARealAPIServerGetsTheSameDecisions(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addStrangers()
	s.addInstance("a", nodeName, nodeAddress)
	s.addInstance("b", "win-b", "10.0.0.12")
	s.startController()

	bootstrap := s.join("a")
	operator := s.account(contract.OperatorNamespace, contract.OperatorServiceAccount)

	first := s.submit(bootstrap, "first", asKubelet(nodeName, certificatesv1.KubeAPIServerClientKubeletSignerName))
	kubelet := s.identity(s.signed("first", "WMCOApprove"), first)
	s.register(kubelet, nodeName, nodeAddress)
	s.submit(kubelet, "serving-early", asKubelet(nodeName, certificatesv1.KubeletServingSignerName, nodeName,
		nodeAddress))
	s.adopt(nodeName, "a")
	s.signed("serving-early", "WMCOApprove") // this request has waited until the Node was adopted

	s.submit(kubelet, "serving-spoofed", asKubelet(nodeName, certificatesv1.KubeletServingSignerName, nodeName,
		"172.30.0.1"))
	s.refused("serving-spoofed", "CSRNameNotOfNode")
	// The admission plugin forbids that a kubelet requests other names, but an administrator may request them.
	mallory, err := s.lab.UserConfig("mallory", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	s.submit(mallory, "serving-of-another", asKubelet("win-b", certificatesv1.KubeletServingSignerName, "win-b"))
	s.refused("serving-of-another", "CSRRequesterWrong")
	s.submit(kubelet, "renewal", asKubelet(nodeName, certificatesv1.KubeAPIServerClientKubeletSignerName))
	s.signed("renewal", "WMCOApprove")
	s.submit(mallory, "client-of-another", asKubelet("win-b", certificatesv1.KubeAPIServerClientKubeletSignerName))
	s.refused("client-of-another", "CSRRequesterWrong")

	daemonKey := s.submit(operator, "wicd-first", asDaemon(nodeName, "a"))
	daemon := s.identity(s.signed("wicd-first", "WICDAutoApproved"), daemonKey)
	s.submit(daemon, "daemon-renewal", asDaemon(nodeName, ""))
	s.signed("daemon-renewal", "WICDAutoApproved")
	s.submit(daemon, "daemon-of-another", asDaemon("win-b", ""))
	s.denied("daemon-of-another", "CSRRequesterWrong")
	s.submit(operator, "wicd-mixed-up", asDaemon(nodeName, "b"))
	s.denied("wicd-mixed-up", "CSRRequesterWrong")

	s.strangersAreLeftAlone()
}

// While a host joins a second time, another joining host also has a token, and a local process on the host may read the
// host's own token. With such a token, nobody must get a certificate for a different node.
func TestA50_ATokenOfOneJoinBuysNoOtherNode(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addInstance("a", nodeName, nodeAddress)
	s.addInstance("b", "win-b", "10.0.0.12")
	s.startController()
	client := certificatesv1.KubeAPIServerClientKubeletSignerName
	hostA, hostB := s.join("a"), s.join("b")

	s.submit(hostB, "with-the-token-of-another", asKubelet(nodeName, client))
	s.refused("with-the-token-of-another", "CSRCredentialForeign")
	s.submit(hostA, "first", asKubelet(nodeName, client))
	s.signed("first", "WMCOApprove")
	s.submit(hostA, "second-key", asKubelet(nodeName, client))
	s.refused("second-key", "CSRKeyOfAnother")
	if id, err := policy.CredentialIDOf(hostA.BearerToken); err != nil || !s.spent.Has(id) {
		t.Errorf("the token of a second key is not deleted: %v", err)
	}
	s.submit(hostB, "own", asKubelet("win-b", client))
	s.signed("own", "WMCOApprove")
	if id, err := policy.CredentialIDOf(hostB.BearerToken); err != nil || s.spent.Has(id) {
		t.Errorf("the token of one key is deleted: %v", err)
	}
}

// With the shipped rights and policies, the operator can create tokens that become invalid when the operator deletes
// their Secrets. It can't create more powerful Secrets.
func TestA50_ABootstrapTokenEndsWithItsJoin(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	operator, err := kubernetes.NewForConfig(s.account(contract.OperatorNamespace, contract.OperatorServiceAccount))
	if err != nil {
		t.Fatal(err)
	}
	tokens := credential.Issuer{Client: operator, Namespace: contract.OperatorNamespace}
	joining, other := instance("a", nodeName, nodeAddress, ""), instance("b", "win-b", "10.0.0.12", "")
	s.create(joining, other) // the owner must exist, or else the Secret is garbage-collected
	shows := func(token credential.Token) error {
		host := s.account(contract.OperatorNamespace, contract.BootstrapServiceAccount)
		host.BearerToken = token.Text
		asker, err := client.New(host, client.Options{Scheme: scheme.New(t)})
		if err != nil {
			t.Fatal(err)
		}
		return asker.List(t.Context(), &certificatesv1.CertificateSigningRequestList{})
	}
	var made []credential.Token
	for _, of := range []*v1alpha1.WindowsInstance{joining, joining, other} {
		token, err := tokens.BootstrapToken(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		if err = shows(token); err != nil {
			t.Fatal(err)
		}
		made = append(made, token)
	}
	for range 2 {
		if err = tokens.Revoke(t.Context(), joining); err != nil {
			t.Fatal(err)
		}
	}
	s.until(func(context.Context) bool { // the API server still accepts a verified token for ten seconds
		return apierrors.IsUnauthorized(shows(made[0])) && apierrors.IsUnauthorized(shows(made[1]))
	}, "the end of both tokens")
	if err = shows(made[2]); err != nil {
		t.Errorf("the other host's token became invalid as well: %v", err)
	}
}

const (
	// storm is the number of older pending requests of other machines. spoofed is the number of requests that contain
	// the name of a node but were sent by someone else.
	storm   = 1_000
	spoofed = 200
	// overtaking is how many foreign requests, at most, may arrive between a host's request and its approval.
	overtaking = 500
)

// Even if many foreign requests are pending, or are arriving, the hosts' requests must be approved in time.
func TestA07_AStormOfOthersKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addInstance("serving", "win-serving", "10.0.0.20")
	s.addInstance("a", nodeName, nodeAddress)
	s.phase("serving", v1alpha1.PhaseReady)
	s.create(node("win-serving", "serving", corev1.ConditionTrue, "10.0.0.20"))
	foreign, spoof := kubeletClient(s.t, "", "linux-0"), kubeletClient(s.t, "", "win-serving")
	s.flood(s.admin, foreign, "before", func(n int) bool { return n < storm })
	s.startController()
	operator := s.account(contract.OperatorNamespace, contract.OperatorServiceAccount)
	ours := func(when string) {
		for n := range 4 {
			kubelet, daemon := fmt.Sprintf("ours-%s-kubelet-%d", when, n), fmt.Sprintf("wicd-%s-%d", when, n)
			bootstrap := s.join("a")
			s.submit(bootstrap, kubelet, asKubelet(nodeName, certificatesv1.KubeAPIServerClientKubeletSignerName))
			s.submit(operator, daemon, asDaemon(nodeName, "a"))
			s.decided(kubelet, certificatesv1.CertificateApproved, "WMCOApprove")
			s.decided(daemon, certificatesv1.CertificateApproved, "WICDAutoApproved")
		}
	}
	ours("first") // when this is approved, all earlier requests are in the queue
	// Each joining host can use this identity for a while.
	thief, err := client.New(s.account(contract.OperatorNamespace, contract.BootstrapServiceAccount),
		client.Options{Scheme: scheme.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var over atomic.Bool
	group.Go(func() { s.flood(s.admin, foreign, "meanwhile", func(int) bool { return !over.Load() }) })
	group.Go(func() { s.flood(thief, spoof, "spoofed", func(n int) bool { return n < spoofed && !over.Load() }) })
	ours("stormy")
	over.Store(true)
	group.Wait()
	slowest, others := s.overtaken()
	t.Logf("at most %d of %d foreign requests arrived between a host's request and its approval", slowest, others)
	if slowest > overtaking {
		t.Errorf("%d requests arrived before a host's request was approved", slowest)
	}
	counts := s.operatorAsked()
	if counts["get windowsinstances"] > 50 || counts["get nodes"] > 50 || counts["create events"] > 50 {
		t.Errorf("the operator's requests were %v", counts)
	}
}

// flood creates requests that follow the pattern, with numbers from 0, as long as more returns true.
func (s *stage) flood(by client.Client, pattern *certificatesv1.CertificateSigningRequest, name string,
	more func(n int) bool) {
	const at = 8
	var group sync.WaitGroup
	numbers := make(chan int)
	for range at {
		group.Go(func() {
			for n := range numbers {
				one := pattern.DeepCopy()
				one.Name = fmt.Sprintf("%s-%d", name, n)
				if err := by.Create(s.t.Context(), one); err != nil {
					s.t.Errorf("creating %s: %v", one.Name, err)
				}
			}
		})
	}
	for n := 0; more(n); n++ {
		numbers <- n
	}
	close(numbers)
	group.Wait()
}

// overtaken returns how many foreign requests, at most, arrived between a host's request and its approval (most). It
// also returns how many foreign requests were not approved (others).
func (s *stage) overtaken() (most, others int) {
	s.t.Helper()
	came, made := map[string]int{}, 0
	for r, err := range cluster.Requests(s.lab.AuditLog) {
		if err != nil {
			s.t.Fatal(err)
		}
		switch {
		case r.Resource != "certificatesigningrequests" || !r.IsWrite():
		case r.Verb == "create":
			made++
			came[r.Name] = made
		case r.Subresource == "approval" && r.Code < 300:
			most = max(most, made-came[r.Name])
			delete(came, r.Name)
		}
	}
	return most, len(came)
}

// operatorAsked counts the requests that the operator sent to the API server, by verb and resource.
func (s *stage) operatorAsked() map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	for request, err := range cluster.Requests(s.lab.AuditLog) {
		if err != nil {
			s.t.Fatal(err)
		}
		if request.User == OperatorUser(namespace) {
			counts[request.Verb+" "+request.Resource]++
		}
	}
	return counts
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return newStageWith(t, cluster.Options{Audit: true})
}

func newStageWith(t *testing.T, o cluster.Options) *stage {
	t.Helper()
	lab := plane.Start(t, o)
	admin, err := client.New(lab.Admin(), client.Options{Scheme: scheme.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	plane.Ship(t, lab)
	return &stage{t: t, lab: lab, admin: admin}
}

// This test checks what SECURITY.md says about old certificates: in most clusters, Kubernetes itself renews them, even
// for removed hosts, and the operator can't prevent this. If Kubernetes' own ClusterRoleBinding is deleted, no
// certificate is renewed.
func TestKubernetesItselfRenewsTheCertificateOfAHostThatWasRemoved(t *testing.T) {
	t.Parallel()
	s := newStageWith(t, cluster.Options{PodNetwork: "10.244.0.0/16"})
	s.addInstance("a", nodeName, nodeAddress)
	s.startController()
	key := s.submit(s.join("a"), "first", asKubelet(nodeName, certificatesv1.KubeAPIServerClientKubeletSignerName))
	certificate := s.signed("first", string(policy.CSRKubeletApproved))
	kubelet := s.identity(certificate, key)
	if err := s.admin.Delete(s.t.Context(), instance("a", nodeName, nodeAddress, "")); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "renewal"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: contract.KubeletGroup}}}
	s.create(binding)
	s.submit(kubelet, "renewal", asKubelet(nodeName, certificatesv1.KubeAPIServerClientKubeletSignerName))
	renewed := s.decided("renewal", certificatesv1.CertificateApproved, "AutoApproved")
	block, _ := pem.Decode(certificate)
	want := fmt.Sprintf("X509SHA256=%x", sha256.Sum256(block.Bytes))
	if got := policy.CredentialOf(renewed); got != want {
		t.Errorf("the request names the credential %q, want %q", got, want)
	}
	if err := s.admin.Delete(s.t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	s.until(func(ctx context.Context) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: contract.KubeletUserPrefix + nodeName, Groups: []string{contract.KubeletGroup},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: certificatesv1.GroupName, Verb: "create",
				Resource: "certificatesigningrequests", Subresource: "selfnodeclient"}}}
		return s.admin.Create(ctx, review) == nil && !review.Status.Allowed
	}, "kube-controller-manager may approve no renewal any more")
}

func (s *stage) create(objects ...client.Object) {
	s.t.Helper()
	for _, object := range objects {
		if err := s.admin.Create(s.t.Context(), object); err != nil {
			s.t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// addStrangers creates pending requests of Linux nodes, as they exist in a growing cluster.
func (s *stage) addStrangers() {
	s.t.Helper()
	for i := range strangers {
		csr := kubeletClient(s.t, fmt.Sprintf("stranger-%d", i), "linux-0")
		s.create(csr)
	}
}

func (s *stage) addInstance(name, node, address string) {
	s.t.Helper()
	object := instance(name, "", address, "")
	s.create(object)
	object.Status = v1alpha1.WindowsInstanceStatus{NodeName: node, Phase: v1alpha1.PhaseBootstrapping}
	if err := s.admin.Status().Update(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

// join creates a bootstrap token for an instance, and returns a client configuration with this token.
func (s *stage) join(name string) *rest.Config {
	s.t.Helper()
	bootstrap := s.account(contract.OperatorNamespace, contract.BootstrapServiceAccount)
	id, err := policy.CredentialIDOf(bootstrap.BearerToken)
	if err != nil {
		s.t.Fatal(err)
	}
	s.status(name, func(status *v1alpha1.WindowsInstanceStatus) { status.BootstrapCredentials = []string{id} })
	return bootstrap
}

// phase sets an instance's phase.
func (s *stage) phase(name string, phase v1alpha1.Phase) {
	s.t.Helper()
	s.status(name, func(status *v1alpha1.WindowsInstanceStatus) { status.Phase = phase })
}

func (s *stage) status(name string, change func(status *v1alpha1.WindowsInstanceStatus)) {
	s.t.Helper()
	object := &v1alpha1.WindowsInstance{}
	if err := s.admin.Get(s.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		s.t.Fatal(err)
	}
	change(&object.Status)
	if err := s.admin.Status().Update(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

// startController runs the controller with the shipped rights until the test ends.
func (s *stage) startController() {
	s.t.Helper()
	mgr, err := ctrl.NewManager(s.account(contract.OperatorNamespace, contract.OperatorServiceAccount), ctrl.Options{
		Scheme: scheme.New(s.t), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Controller: config.Controller{SkipNameValidation: new(true)}, // needed for go test -count
		Cache: cache.Options{
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.WindowsInstance{}: {Namespaces: map[string]cache.Config{namespace: {}}}}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.spent = NewUsedTokens()
	err = Setup(mgr, Options{Namespace: namespace, OperatorUser: OperatorUser(namespace), BootstrapUser: bootstrapUser(),
		UsedTokens: s.spent,
		Reserved:   func(context.Context) ([]netip.Prefix, []string, error) { return nil, nil, nil },
		ServiceNetwork: func(context.Context) (netip.Prefix, error) {
			return netip.MustParsePrefix("172.30.0.0/16"),
				nil
		}})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *stage) account(namespace, name string) *rest.Config {
	s.t.Helper()
	config, _, err := s.lab.ServiceAccountConfig(s.t.Context(), namespace, name, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	return config
}

// asking is the content of a certificate request.
type asking struct {
	subject pkix.Name
	names   []string // DNS names and addresses
	spec    certificatesv1.CertificateSigningRequestSpec
	about   string // the instance that the operator writes into the request
}

func asKubelet(node, signer string, names ...string) asking {
	usage := certificatesv1.UsageClientAuth
	if signer == certificatesv1.KubeletServingSignerName {
		usage = certificatesv1.UsageServerAuth
	}
	return asking{subject: pkix.Name{CommonName: contract.KubeletUserPrefix + node,
		Organization: []string{contract.KubeletGroup}}, names: names,
		spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage}}}
}

func asDaemon(node, instance string) asking {
	return asking{subject: pkix.Name{CommonName: contract.DaemonUserPrefix + node,
		Organization: []string{contract.DaemonGroup}}, about: instance,
		spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: new(int32(14 * 24 * 3600)),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature,
				certificatesv1.UsageClientAuth}}}
}

// submit creates a key, requests a certificate for it, and returns the key.
func (s *stage) submit(as *rest.Config, name string, what asking) (key []byte) {
	s.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: what.subject}
	for _, text := range what.names {
		if ip := net.ParseIP(text); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, text)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, private)
	if err != nil {
		s.t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: what.spec}
	if what.about != "" {
		csr.Annotations = map[string]string{contract.InstanceAnnotation: namespace + "/" + what.about}
	}
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	asker, err := client.New(as, client.Options{Scheme: scheme.New(s.t)})
	if err != nil {
		s.t.Fatal(err)
	}
	if err = asker.Create(s.t.Context(), csr); err != nil {
		s.t.Fatalf("submitting %s: %v", name, err)
	}
	if der, err = x509.MarshalPKCS8PrivateKey(private); err != nil {
		s.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// identity returns a client configuration that uses a signed certificate.
func (s *stage) identity(certificate, key []byte) *rest.Config {
	config := &rest.Config{Host: s.lab.URL, QPS: -1}
	config.CAData, config.CertData, config.KeyData = s.lab.CAPEM, certificate, key
	return config
}

// register simulates a kubelet that creates its Node and reports its address.
func (s *stage) register(kubelet *rest.Config, name, address string) {
	s.t.Helper()
	c, err := client.New(kubelet, client.Options{Scheme: scheme.New(s.t)})
	if err != nil {
		s.t.Fatal(err)
	}
	n := node(name, "", corev1.ConditionTrue, address)
	n.Annotations = nil
	status := n.DeepCopy()
	if err = c.Create(s.t.Context(), n); err != nil {
		s.t.Fatalf("registering %s: %v", name, err)
	}
	before := n.DeepCopy()
	n.Status = status.Status
	if err = c.Status().Patch(s.t.Context(), n, client.MergeFrom(before)); err != nil {
		s.t.Fatalf("reporting the status of %s: %v", name, err)
	}
}

// adopt simulates the instance controller when it adopts a Node.
func (s *stage) adopt(name, instance string) {
	s.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+contract.InstanceAnnotation+`":"`+namespace+"/"+instance+`"}}}`))
	if err := s.admin.Patch(s.t.Context(), n, patch); err != nil {
		s.t.Fatal(err)
	}
}

// signed waits until a request was approved with this reason, and signed. It returns the certificate.
func (s *stage) signed(name, reason string) (certificate []byte) {
	s.t.Helper()
	csr := s.decided(name, certificatesv1.CertificateApproved, reason)
	s.until(func(ctx context.Context) bool {
		return s.admin.Get(ctx, client.ObjectKey{Name: name}, csr) == nil && len(csr.Status.Certificate) > 0
	}, name+" is signed")
	return csr.Status.Certificate
}

func (s *stage) denied(name, reason string) {
	s.t.Helper()
	s.decided(name, certificatesv1.CertificateDenied, reason)
}

func (s *stage) decided(name string, kind certificatesv1.RequestConditionType,
	reason string) *certificatesv1.CertificateSigningRequest {
	s.t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{}
	s.until(func(ctx context.Context) bool {
		return s.admin.Get(ctx, client.ObjectKey{Name: name}, csr) == nil && len(csr.Status.Conditions) > 0
	}, name+" is decided")
	if c := csr.Status.Conditions[0]; c.Type != kind || c.Reason != reason {
		s.t.Fatalf("%s: %s %s: %s; want %s %s", name, c.Type, c.Reason, c.Message, kind, reason)
	}
	return csr
}

// refused waits until events on the request and on the instance report why the request stays pending. Then it checks
// that the request stays pending.
func (s *stage) refused(name, reason string) {
	s.t.Helper()
	s.until(func(ctx context.Context) bool {
		list := &eventsv1.EventList{}
		if err := s.admin.List(ctx, list); err != nil {
			return false
		}
		var atRequest, atInstance bool
		for _, e := range list.Items {
			atRequest = atRequest || e.Reason == reason && e.Regarding.Name == name
			atInstance = atInstance || e.Reason == reason && e.Regarding.Kind == "WindowsInstance" &&
				strings.Contains(e.Note, name)
		}
		return atRequest && atInstance
	}, name+" is refused")
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := s.admin.Get(s.t.Context(), client.ObjectKey{Name: name}, csr); err != nil ||
		len(csr.Status.Conditions) > 0 {
		s.t.Errorf("%s: %+v, %v", name, csr.Status.Conditions, err)
	}
}

func (s *stage) until(done func(ctx context.Context) bool, what string) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) { return done(ctx), nil })
	if err != nil {
		s.t.Fatalf("waiting until %s: %v", what, err)
	}
}

// strangersAreLeftAlone checks in the audit log that the controller sent no API requests about other machines.
func (s *stage) strangersAreLeftAlone() {
	s.t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := s.admin.List(s.t.Context(), list); err != nil {
		s.t.Fatal(err)
	}
	pending := 0
	for _, csr := range list.Items {
		if strings.HasPrefix(csr.Name, "stranger-") && len(csr.Status.Conditions) == 0 {
			pending++
		}
	}
	if pending != strangers {
		s.t.Errorf("%d of %d foreign requests are pending", pending, strangers)
	}
	counts := map[string]int{}
	for request, err := range cluster.Requests(s.lab.AuditLog) {
		if err != nil {
			s.t.Fatal(err)
		}
		if request.User == OperatorUser(namespace) {
			counts[request.Verb+" "+request.Resource]++
			if strings.HasPrefix(request.Name, "stranger-") || request.Name == "linux-0" {
				s.t.Errorf("the operator requested %s %s", request.Verb, request.URI)
			}
			if request.Code == 403 {
				s.t.Errorf("the operator lacks a right: %s %s", request.Verb, request.URI)
			}
		}
	}
	if counts["update certificatesigningrequests"] == 0 || counts["get nodes"] > 0 {
		s.t.Errorf("requests of the operator: %v", counts)
	}
	s.t.Logf("requests of the operator: %v", counts)
}
