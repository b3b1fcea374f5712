package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/csr"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// stormLabel is the label of the storm's requests.
const stormLabel = "storm"

// Thousands of foreign certificate requests must not delay the requests of nodes. The test is not parallel, so it is
// over before the other end-to-end tests begin.
func TestAStormOfForeignRequestsDelaysNobody(t *testing.T) {
	const (
		requests = 10_000
		// overtaking is the maximum number of requests of the storm and of the operator between a node's request and
		// its approval.
		overtaking = 1_000
	)
	s := startedCloud(t)
	bystanders := s.hosts(t, 2)
	s.join(t, bystanders...)
	before := connections(bystanders)
	storm := s.storm(t, requests)
	began := time.Now()
	s.set(t, "early", 2)
	s.running(t, "early", 2)
	t.Logf("machines became nodes within %s after the storm began", time.Since(began).Round(time.Millisecond))
	storm()
	t.Logf("%d requests were created within %s", requests, time.Since(began).Round(time.Second))
	if err := s.Operator.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Operator.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	s.set(t, "late", 2)
	s.running(t, "late", 2)
	t.Logf("with all foreign requests present, machines became nodes within %s after the operator's start",
		time.Since(began).Round(time.Millisecond))
	if now := connections(bystanders); now != before {
		t.Errorf("foreign requests caused %d connections to hosts", now-before)
	}
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := s.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	pending := 0
	for _, request := range list.Items {
		if request.Labels[stormLabel] != "" && len(request.Status.Conditions) == 0 {
			pending++
		}
	}
	slowest, who := s.overtaken(t)
	t.Logf("at most %d requests of the storm and of the operator came between a node's request, %s, and its approval",
		slowest, who)
	if slowest > overtaking {
		t.Errorf("%d requests came before %s was approved", slowest, who)
	}
	if pending != requests {
		t.Errorf("%d of %d foreign requests are pending: others may decide about them", pending, requests)
	}
	s.drop(t, bystanders...)
	s.gone(t, bystanders...)
}

// overtaken returns the largest number of requests of the storm and of the operator between a certificate request and
// its approval, and the name of this certificate request.
func (s *stage) overtaken(t *testing.T) (most int, who string) {
	t.Helper()
	operator, asked, came := csr.OperatorUser(contract.OperatorNamespace), 0, map[string]int{}
	for r, err := range s.Requests() {
		must(t, err)
		ours := r.User == operator && r.Verb != "watch"
		create := r.Resource == "certificatesigningrequests" && r.Verb == "create" && r.Code < 300
		if ours || create {
			asked++
		}
		if create {
			came[r.Name] = asked
		}
		if since, is := came[r.Name]; is && ours && r.Subresource == "approval" && asked-since > most {
			most, who = asked-since, r.Name
		}
	}
	return most, who
}

func connections(hosts []*fleet.Host) (sum int64) {
	for _, h := range hosts {
		sum += h.Server.Counters().Connections
	}
	return sum
}

// storm creates requests for nodes that don't exist and for foreign identities, until the returned function is called.
func (s *stage) storm(t *testing.T, count int) (end func()) {
	t.Helper()
	config := rest.CopyConfig(s.Cluster.Admin())
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: s.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		// On a busy machine, deleting all requests at once exceeds the API server's time limit, so the deletion is
		// repeated.
		must(t, s.Await(ctx, soon, "the requests of the storm to be deleted",
			func(ctx context.Context) (gone bool, detail string, err error) {
				refused := c.DeleteAllOf(ctx, &certificatesv1.CertificateSigningRequest{}, client.HasLabels{stormLabel})
				return refused == nil, fmt.Sprint(refused), nil
			}))
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	done := make(chan error, 1)
	go func() {
		for i := range count {
			group.Go(func() error { return c.Create(ctx, foreign(i, key)) })
		}
		done <- group.Wait()
	}()
	return func() {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// foreign returns the foreign request number i. In turn, it is a kubelet's first request, a kubelet's serving request,
// and a request of another kind.
func foreign(i int, key *ecdsa.PrivateKey) *certificatesv1.CertificateSigningRequest {
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("storm-%05d", i),
		Labels: map[string]string{stormLabel: "yes"}}}
	name := fmt.Sprintf("%sip-127-32-%d-%d.ec2.internal.example", contract.KubeletUserPrefix, i/200, i%200)
	subject := pkix.Name{CommonName: name, Organization: []string{contract.KubeletGroup}}
	csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	switch i % 3 {
	case 0:
		csr.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	case 1:
		csr.Spec.SignerName = certificatesv1.KubeletServingSignerName
		csr.Spec.Usages[1] = certificatesv1.UsageServerAuth
	default:
		csr.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
		subject = pkix.Name{CommonName: fmt.Sprintf("somebody-%d", i)}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: subject, DNSNames: []string{"x.example.com"}}, key)
	if err != nil {
		panic(err) // the key is valid
	}
	csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return csr
}
