package e2e_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	tokenLife = time.Hour
	tenYears  = int32(10 * 365 * 24 * 3600)
	twoWeeks  = int32(14 * 24 * 3600)
)

// asking describes a request for a certificate.
type asking struct {
	as   *rest.Config
	user string
	// group is the organization of the subject.
	group string
	// names are the DNS names and IP addresses in the request.
	names  []string
	signer string
	// usage is the key usage in addition to digital signature.
	usage certificatesv1.KeyUsage
	// life is the requested lifetime in seconds. 0 requests no lifetime.
	life int32
	// instance is the WindowsInstance that the operator's own requests name.
	instance string
}

func kubeletClient(as *rest.Config, node string) asking {
	return asking{as: as, user: contract.KubeletUserPrefix + node, group: contract.KubeletGroup,
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth}
}

func kubeletServing(as *rest.Config, node string, names ...string) asking {
	return asking{as: as, user: contract.KubeletUserPrefix + node, group: contract.KubeletGroup, names: names,
		signer: certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth}
}

func daemonClient(as *rest.Config, node string) asking {
	return asking{as: as, user: contract.DaemonUserPrefix + node, group: contract.DaemonGroup,
		signer: certificatesv1.KubeAPIServerClientSignerName, usage: certificatesv1.UsageClientAuth, life: twoWeeks}
}

// but returns a copy of the request with a change.
func (a asking) but(change func(a *asking)) asking {
	change(&a)
	return a
}

// ask submits a request with a new key. When the test ends, it deletes the request.
func (s *stage) ask(t *testing.T, name string, a asking) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: a.user, Organization: []string{a.group}}}
	for _, name := range a.names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: a.signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, a.usage},
		},
	}
	if a.life != 0 {
		csr.Spec.ExpirationSeconds = &a.life
	}
	if a.instance != "" {
		csr.Annotations = map[string]string{contract.InstanceAnnotation: contract.OperatorNamespace + "/" + a.instance}
	}
	err = s.as(t, a.as).Create(t.Context(), csr)
	if err == nil {
		t.Cleanup(func() { _ = s.Client.Delete(context.WithoutCancel(t.Context()), csr) })
	}
	return err
}

// spoof is a request that must not be signed.
type spoof struct {
	asking
	// reason is the reason of the operator's decision. It is empty if the API server rejects the request.
	reason string
	denied bool
}

func TestA07_SpoofedRequestsAreNotApproved(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	a, b := hosts[0].Name, hosts[1].Name
	linux := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "linux-master",
		Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	s.put(t, linux)
	foreign := s.asker(t, "foreign")
	bootstrap := s.account(t, contract.OperatorNamespace, contract.BootstrapServiceAccount)
	operator := s.account(t, contract.OperatorNamespace, contract.OperatorServiceAccount)
	kubelet, daemon := s.stolen(t, hosts[0], kubeletCredential), s.stolen(t, hosts[0], contract.PathDaemonCertificate)
	instance := s.instance(t, hosts[0]).Name

	spoofs := map[string]spoof{
		"a kubelet's by a foreign service account": {asking: kubeletClient(foreign, a),
			reason: "CSRRequesterWrong"},
		"a kubelet's by the bootstrapper, of a Node that works": {asking: kubeletClient(bootstrap, a),
			reason: "CSRPhaseEarly"},
		"a Linux node's": {asking: kubeletClient(bootstrap, linux.Name),
			reason: "CSRNameForeign"},
		"a name that is a part of ours": {asking: kubeletClient(bootstrap, a[:len(a)-1]),
			reason: "CSRNameForeign"},
		"a name that ours is a part of":  {asking: kubeletClient(bootstrap, a+"0"), reason: "CSRNameForeign"},
		"a kubelet's by another kubelet": {asking: kubeletClient(kubelet, b)},
		"a kubelet's for ten years": {asking: kubeletClient(kubelet,
			a).but(func(a *asking) { a.life = tenYears }), reason: "CSRLifetimeLong"},
		"a kubelet's that may serve": {asking: kubeletClient(foreign,
			a).but(func(a *asking) { a.usage = certificatesv1.UsageServerAuth }), reason: "CSRUsagesWrong"},
		"a kubelet's of another organization": {asking: kubeletClient(kubelet,
			a).but(func(a *asking) { a.group = "system:masters" }), reason: "CSRSubjectWrong"},
		"a kubelet's from the general signer": {asking: kubeletClient(daemon,
			a).but(func(a *asking) { a.signer, a.life = certificatesv1.KubeAPIServerClientSignerName, twoWeeks }),
			reason: "CSRSignerWrong"},
		"a kubelet's by the daemon": {asking: kubeletClient(daemon, a)},
		"a serving one with another node's name": {asking: kubeletServing(kubelet, a, a, b),
			reason: "CSRNameNotOfNode"},
		"a serving one with another node's address": {
			asking: kubeletServing(kubelet, a, a, hosts[1].Address().Addr().String()), reason: "CSRNameNotOfNode"},
		"a serving one with the API server's name": {asking: kubeletServing(kubelet, a, "kubernetes.default.svc"),
			reason: "CSRNameNotOfNode"},
		"a serving one with the API server's address": {asking: kubeletServing(kubelet, a, a, "172.30.0.1"),
			reason: "CSRNameNotOfNode"},
		"a serving one by somebody else": {asking: kubeletServing(foreign, a, a),
			reason: "CSRRequesterWrong"},
		"a daemon's by another daemon": {asking: daemonClient(daemon, b), reason: "CSRRequesterWrong",
			denied: true},
		"a daemon's by a foreign service account": {asking: daemonClient(foreign, a), reason: "CSRRequesterWrong",
			denied: true},
		"a daemon's by the bootstrapper": {asking: daemonClient(bootstrap, a),
			reason: "CSRRequesterWrong", denied: true},
		"a daemon's of a Linux node": {asking: daemonClient(daemon, linux.Name),
			reason: "CSRNameForeign"},
		"a daemon's for a name that ours is a part of": {asking: daemonClient(daemon, a+"0"), reason: "CSRNameForeign"},
		"a daemon's of another organization": {
			asking: daemonClient(daemon, a).but(func(a *asking) { a.group = contract.KubeletGroup }),
			reason: "CSRSubjectWrong", denied: true},
		"a daemon's that rules": {asking: daemonClient(daemon,
			a).but(func(a *asking) { a.group = "system:masters" })},
		"a daemon's with a name": {asking: daemonClient(daemon,
			a).but(func(x *asking) { x.names = []string{a} }), reason: "CSRNamesForbidden", denied: true},
		"a daemon's for ten years": {asking: daemonClient(daemon,
			a).but(func(a *asking) { a.life = tenYears })},
		"a daemon's without a lifetime": {asking: daemonClient(daemon,
			a).but(func(a *asking) { a.life = 0 })},
		"a daemon's that may serve": {asking: daemonClient(daemon,
			a).but(func(a *asking) { a.usage = certificatesv1.UsageServerAuth })},
		"the operator's for ten years": {asking: daemonClient(operator,
			a).but(func(a *asking) { a.life, a.instance = tenYears, instance })},
		"the operator's for a kubelet": {asking: kubeletClient(operator,
			a).but(func(a *asking) { a.instance = instance })},
		"the operator's, mixed up": {asking: daemonClient(operator,
			b).but(func(a *asking) { a.instance = instance }), reason: "CSRRequesterWrong", denied: true},
		"the operator's, of a host that has joined": {asking: daemonClient(operator,
			a).but(func(a *asking) { a.instance = instance }), reason: "CSRPhaseEarly"},
	}
	asked := map[string]spoof{}
	for what, spoof := range spoofs {
		name := "wicd-spoof-" + strings.Map(letters, what)
		err := s.ask(t, name, spoof.asking)
		switch {
		case spoof.reason == "" && !apierrors.IsForbidden(err):
			t.Errorf("%s: the API server accepted the request: %v", what, err)
		case spoof.reason != "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case spoof.reason != "":
			asked[name] = spoof
		}
	}
	for name, spoof := range asked {
		s.looked(t, name, spoof.reason)
	}
	// Finally, a valid request must still be approved. This shows that the operator was running when it did not approve
	// the others.
	s.approved(t, "honest-kubelet", kubeletClient(kubelet, a), "WMCOApprove")
	s.approved(t, "honest-serving", kubeletServing(kubelet, a, a, hosts[0].Address().Addr().String()), "WMCOApprove")
	s.approved(t, "honest-daemon", daemonClient(daemon, a), "WICDAutoApproved")
	for name, spoof := range asked {
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := s.Client.Get(t.Context(), client.ObjectKey{Name: name}, csr); err != nil {
			t.Fatal(err)
		}
		denied := len(csr.Status.Conditions) == 1 && csr.Status.Conditions[0].Type == certificatesv1.CertificateDenied
		if len(csr.Status.Certificate) > 0 || denied != spoof.denied || !denied && len(csr.Status.Conditions) > 0 {
			t.Errorf("%s: %+v", name, csr.Status.Conditions)
		}
	}
}

func letters(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z':
		return r
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case r == ' ':
		return '-'
	}
	return -1
}

// put creates an object, and deletes it when the test ends.
func (s *stage) put(t *testing.T, object client.Object) {
	t.Helper()
	if err := s.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Client.Delete(context.WithoutCancel(t.Context()), object) })
}

// asker creates a service account that may submit requests, and returns a configuration for it.
func (s *stage) asker(t *testing.T, name string) *rest.Config {
	t.Helper()
	s.put(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}})
	s.put(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
	})
	return s.account(t, metav1.NamespaceDefault, name)
}

// looked waits until the operator's last log line about a request gives this reason.
func (s *stage) looked(t *testing.T, request, reason string) {
	t.Helper()
	s.await(t, fmt.Sprintf("the operator to log the reason %s for %s", reason, request),
		func(context.Context) (bool, string, error) {
			log, err := os.ReadFile(s.Operator.Log)
			if err != nil {
				return false, "", err
			}
			said := ""
			for line := range bytes.Lines(log) {
				if bytes.Contains(line, []byte(`"certificate request `)) &&
					bytes.Contains(line, []byte(`="`+request+`"`)) {
					said = string(line)
				}
			}
			return strings.Contains(said, `reason="`+reason+`"`), said, nil
		})
}

// approved submits a request and waits until it has a certificate.
func (s *stage) approved(t *testing.T, name string, a asking, reason string) {
	t.Helper()
	if err := s.ask(t, name, a); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	s.await(t, name+" to be signed", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKey{Name: name}, csr)
		return len(csr.Status.Certificate) > 0, fmt.Sprint(csr.Status.Conditions), err
	})
	if c := csr.Status.Conditions[0]; c.Reason != reason {
		t.Errorf("%s was approved as %s (%s), want %s", name, c.Reason, c.Message, reason)
	}
}
