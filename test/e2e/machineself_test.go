package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"regexp"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/scene"
)

func TestA88_AMachineSetJoinsWithoutAPrivateKey(t *testing.T) {
	t.Parallel()
	s := byItselfIn(t, 0, func(t *testing.T, o scene.Options) *stage {
		t.Helper()
		o.Platform, o.Cloud = platform, cloud.Options{Provision: 200 * time.Millisecond}
		return own(t, o)
	})
	if _, err := s.NewMachineSet(t.Context(), "windows", 2); err != nil {
		t.Fatal(err)
	}
	machines := s.running(t, "windows", 2)
	for i := range machines {
		instance, host := s.named(t, &machines[i]), s.host(t, &machines[i])
		if node := s.nodeOf(t, &machines[i]); instance.Spec.ByItself == nil || host.Server != nil ||
			node.Spec.ProviderID != *machines[i].Spec.ProviderID || node.Name != host.Name {
			t.Errorf("%s: joins by itself: %v, has an SSH server: %v, node %s, provider ID %s", machines[i].Name,
				instance.Spec.ByItself, host.Server, node.Name, node.Spec.ProviderID)
		}
	}

	t.Log("a thief has the token of the user data")
	s.thief(t, &machines[0])

	t.Log("the set makes another Machine, and leaves nothing of the one before")
	must(t, s.Client.Delete(t.Context(), &machines[0]))
	must(t, s.WaitMachineGone(t.Context(), 2*soon, &machines[0]))
	before := s.running(t, "windows", 2)

	t.Log("a private key comes: the next Machine has an SSH server, and the others go on")
	must(t, s.PutKey(t.Context(), s.Key))
	s.letsIn(t, contract.MachineAPINamespace, s.Key)
	must(t, s.Scale(t.Context(), nil, "windows", 1))
	for _, m := range s.running(t, "windows", 3) {
		isOld := m.Name == before[0].Name || m.Name == before[1].Name
		if instance := s.named(t, &m); (instance.Spec.ByItself != nil) != isOld {
			t.Errorf("%s: spec.byItself is %v", m.Name, instance.Spec.ByItself)
		}
	}

	t.Log("the private key goes: the user data is a command again, and the next Machine joins by itself")
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name: contract.PrivateKeySecret}}
	must(t, s.Client.Delete(t.Context(), key))
	if err := s.Await(t.Context(), 3*time.Minute, "the user data to be a command", func(context.Context) (bool, string, error) {
		return userDataToken.MatchString(s.userData(t, contract.MachineAPINamespace)), "", nil
	}); err != nil {
		t.Fatal(err)
	}
	must(t, s.Scale(t.Context(), nil, "windows", 1))
	s.await(t, "four Machines with Nodes", func(ctx context.Context) (bool, string, error) {
		all, err := s.Machines(ctx, "windows")
		nodes, itself := 0, 0
		for i := range all {
			if all[i].Status.NodeRef != nil {
				nodes++
			}
			if instance, err := s.InstanceNamed(ctx, all[i].Name); err == nil && instance.Spec.ByItself != nil {
				itself++
			}
		}
		return nodes == 4 && itself == 3, fmt.Sprintf("%d machines have a Node, %d join by themselves", nodes, itself),
			err
	})
}

var userDataToken = regexp.MustCompile(`"token":"([^"]+)"`)

// thief tries to use the token in the user data for other purposes than joining.
func (s *stage) thief(t *testing.T, victim *machinev1beta1.Machine) {
	t.Helper()
	found := userDataToken.FindStringSubmatch(s.userData(t, contract.MachineAPINamespace))
	if found == nil {
		t.Fatal("the user data has no token")
	}
	admin := s.Cluster.Admin()
	api, err := client.New(&rest.Config{Host: admin.Host, BearerToken: found[1],
		TLSClientConfig: rest.TLSClientConfig{CAData: admin.CAData, CAFile: admin.CAFile}},
		client.Options{Scheme: s.Client.Scheme()})
	must(t, err)
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.NodeList{}, &corev1.ConfigMapList{}} {
		if err = api.List(t.Context(), list, client.InNamespace(contract.OperatorNamespace)); !apierrors.IsForbidden(err) {
			t.Errorf("with the token, a client can list %T: %v", list, err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	must(t, err)
	id := contract.Digest(der)
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: contract.HostUserPrefix + id,
		Organization: []string{contract.HostGroup}}, nil, []net.IP{net.ParseIP(victim.Status.Addresses[0].Address)})
	must(t, err)
	seconds := int32(14 * 24 * 3600)
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "windows-host-" + id},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, ExpirationSeconds: &seconds,
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}}
	must(t, api.Create(t.Context(), csr))
	s.await(t, "the thief to be denied", func(ctx context.Context) (bool, string, error) {
		err := api.Get(ctx, client.ObjectKeyFromObject(csr), csr)
		return len(csr.Status.Conditions) == 1 && csr.Status.Conditions[0].Type == certificatesv1.CertificateDenied &&
			csr.Status.Conditions[0].Reason == "CSRKeyOfAnother", fmt.Sprint(csr.Status.Conditions), err
	})
}
