package config_test

import (
	"context"
	"maps"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/openshift"
)

// linux is the name of a control-plane Node.
const linux = "master-0"

// An attacker may steal a token of the operator. This test tries what the attacker could do. Policies must limit it.
func TestA36_AStolenTokenOfTheOperatorIsBoundByPolicies(t *testing.T) {
	t.Parallel()
	lab := common(t)
	admin := connect(t, lab.Admin())
	a, b := two(t, admin)
	config, _, err := lab.ServiceAccountConfig(t.Context(), contract.OperatorNamespace, contract.OperatorServiceAccount,
		time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	operator := connect(t, config)
	waitForOperatorPolicies(t, admin, operator, b)
	tries(t, operator, operatorMay(t, a, b), func(err error) bool { return err == nil })
	tries(t, operator, thiefMayNot(t, a), refusedByPolicy)
	t.Run("approvals", func(t *testing.T) { approvals(t, lab, operator) })
	t.Run("Machines", func(t *testing.T) { machines(t, lab, config) })
	node, err := admin.CoreV1().Nodes().Get(t.Context(), linux, metav1.GetOptions{})
	if err != nil || len(node.Spec.Taints) == 0 || node.Spec.Unschedulable {
		t.Errorf("node %s: %+v, %v", linux, node, err)
	}
}

// tries makes requests, and checks that all have the wanted result.
func tries(t *testing.T, c kubernetes.Interface, all map[string]attempt, want func(error) bool) {
	t.Helper()
	for name, try := range all {
		t.Run(name, func(t *testing.T) {
			if err := try(t.Context(), c); !want(err) {
				t.Errorf("the request returned: %v", err)
			}
		})
	}
}

func operatorMay(t *testing.T, a, b string) map[string]attempt {
	t.Helper()
	return map[string]attempt{
		"marks a Windows Node":              patch(a, `{"metadata":{"labels":{"node-role.kubernetes.io/worker":""}}}`),
		"cordons it":                        patch(a, `{"spec":{"unschedulable":true}}`),
		"taints it":                         patch(a, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`),
		"requests a daemon's certificate":   requested(t, "wicd-"+a+"-4", nil),
		"mints a token that ends with join": mint("windows-bootstrap-1", 3600),
		"removes a Windows Node": func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Nodes().Delete(ctx, b, metav1.DeleteOptions{})
		},
	}
}

func thiefMayNot(t *testing.T, a string) map[string]attempt {
	t.Helper()
	all := map[string]attempt{
		"untaints the control plane":        patch(linux, `{"spec":{"taints":null}}`),
		"cordons the control plane":         patch(linux, `{"spec":{"unschedulable":true}}`),
		"annotates the control plane":       annotate(linux, contract.RevisionAnnotation),
		"calls a Node of Linux Windows":     patch(linux, `{"metadata":{"labels":{"kubernetes.io/os":"windows"}}}`),
		"calls a Windows Node Linux":        patch(a, `{"metadata":{"labels":{"kubernetes.io/os":"linux"}}}`),
		"makes a Windows Node a controller": patch(a, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		"gives a Node an owner": patch(a,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]}}`),
		"gives a Node a finalizer": patch(a, `{"metadata":{"finalizers":["example.com/stay"]}}`),
		"gives a Node a provider":  patch(a, `{"spec":{"providerID":"aws:///i-1"}}`),
		"deletes the control plane": func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Nodes().Delete(ctx, linux, metav1.DeleteOptions{})
		},
		"mints a token that outlives the join": mint("", 3600),
		"mints a token of another Secret":      mint("other", 3600),
		"mints a token for a day":              mint("windows-bootstrap-1", 24*3600),
	}
	maps.Copy(all, map[string]attempt{
		"requests under any name": requested(t, "mine", nil),
		"requests a kubelet's certificate": requested(t, "wicd-1", func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		}),
		"requests a serving certificate": requested(t, "wicd-2", func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = certificatesv1.KubeletServingSignerName
		}),
		"requests a certificate without end": requested(t, "wicd-3", func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.ExpirationSeconds = nil
		}),
		"requests a certificate of 15 days": requested(t, "wicd-4", func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.ExpirationSeconds = new(int32(15 * 24 * 3600))
		}),
		"requests a certificate to serve with": requested(t, "wicd-5", func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages[1] = certificatesv1.UsageServerAuth
		}),
	})
	return all
}

// requested creates a daemon's certificate request after a change.
func requested(t *testing.T, name string, change func(*certificatesv1.CertificateSigningRequestSpec)) attempt {
	t.Helper()
	request := daemonRequest(t, name)
	if change != nil {
		change(&request.Spec)
	}
	return func(ctx context.Context, c kubernetes.Interface) error { return ask(ctx, c, request) }
}

// mint requests a token for the bootstrapper. The token is bound to a Secret, or to no object if secret is empty.
func mint(secret string, seconds int64) attempt {
	return mintIn(contract.OperatorNamespace, secret, seconds)
}

func mintIn(namespace, secret string, seconds int64) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		if secret != "" {
			request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret",
				Name: secret}
		}
		_, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx,
			contract.BootstrapServiceAccount, request, metav1.CreateOptions{})
		return err
	}
}

// approvals tests which certificate requests can be approved with the operator's token.
func approvals(t *testing.T, lab *cluster.Cluster, operator kubernetes.Interface) {
	t.Helper()
	bootstrapper := contract.BootstrapUser(contract.OperatorNamespace)
	of := func(signer string, usage certificatesv1.KeyUsage) func(*certificatesv1.CertificateSigningRequestSpec) {
		return func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName, s.Usages[1] = signer, usage }
	}
	client := of(certificatesv1.KubeAPIServerClientSignerName, certificatesv1.UsageClientAuth)
	kubelet := of(certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth)
	serving := of(certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth)
	for name, test := range map[string]struct {
		requester string
		change    func(*certificatesv1.CertificateSigningRequestSpec)
		allowed   bool
	}{
		"a host's renewal":                      {contract.HostUserPrefix + "uid", client, true},
		"a daemon's renewal":                    {contract.DaemonUserPrefix + "win-a", client, true},
		"a kubelet's renewal":                   {contract.KubeletUserPrefix + "win-a", kubelet, true},
		"a kubelet's serving certificate":       {contract.KubeletUserPrefix + "win-a", serving, true},
		"a kubelet's first certificate":         {bootstrapper, kubelet, true},
		"one for OpenShift's own bootstrapper":  {contract.BootstrapUser(contract.MachineConfigNamespace), kubelet, false},
		"somebody's client certificate":         {"mallory", client, false},
		"the bootstrapper's other certificate":  {bootstrapper, client, false},
		"somebody's kubelet certificate":        {"mallory", kubelet, false},
		"somebody's serving certificate":        {"mallory", serving, false},
		"the bootstrapper's serving for others": {bootstrapper, serving, false},
	} {
		t.Run(name, func(t *testing.T) {
			request := daemonRequest(t, "")
			request.GenerateName = "asked-"
			test.change(&request.Spec)
			// The requester gets all rights, because this test is only about approvals.
			made, err := as(t, lab, test.requester, "system:masters").CertificatesV1().CertificateSigningRequests().
				Create(t.Context(), request, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			err = decide(t, operator, made, certificatesv1.CertificateApproved)
			if test.allowed && err != nil || !test.allowed && !refusedByPolicy(err) {
				t.Errorf("the approval returned: %v", err)
			}
			if !test.allowed {
				if err := decide(t, operator, made, certificatesv1.CertificateDenied); err != nil {
					t.Errorf("the denial returned: %v", err)
				}
			}
		})
	}
}

func decide(t *testing.T, c kubernetes.Interface, request *certificatesv1.CertificateSigningRequest,
	kind certificatesv1.RequestConditionType) error {
	t.Helper()
	decided := request.DeepCopy()
	decided.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: kind, Status: corev1.ConditionTrue, Reason: "Tried"}}
	_, err := c.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), decided.Name, decided,
		metav1.UpdateOptions{})
	return err
}

// machines tests which Machines can be deleted with the operator's token.
func machines(t *testing.T, lab *cluster.Cluster, config *rest.Config) {
	t.Helper()
	dirs, err := cluster.OpenShiftCRDDirs(t.Context(), "machine/v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = cluster.InstallCRDs(t.Context(), lab.Admin(), cluster.CRDOptions{Paths: dirs,
		Names: []string{"machines.machine.openshift.io", "machinesets.machine.openshift.io"}, Filter: cluster.OpenShiftDefault})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := openshift.Client(lab.Admin())
	if err != nil {
		t.Fatal(err)
	}
	operator, err := openshift.Client(config)
	if err != nil {
		t.Fatal(err)
	}
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, GenerateName: "set-"}}
	if err = admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	owned := []metav1.OwnerReference{*metav1.NewControllerRef(set, machinev1beta1.GroupVersion.WithKind("MachineSet"))}
	windows := map[string]string{contract.MachineOSLabel: contract.OSIDWindows}
	for name, test := range map[string]struct {
		labels  map[string]string
		owners  []metav1.OwnerReference
		allowed bool
	}{
		"windows-of-a-set":  {windows, owned, true},
		"windows-of-nobody": {windows, nil, false},
		"linux-of-a-set":    {nil, owned, false},
		linux:               {map[string]string{"machine.openshift.io/cluster-api-machine-role": "master"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace,
				GenerateName: name + "-", Labels: test.labels, OwnerReferences: test.owners}}
			if err := admin.Create(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			err := operator.Delete(t.Context(), machine)
			if test.allowed && err != nil || !test.allowed && !refusedByPolicy(err) {
				t.Errorf("the deletion returned: %v", err)
			}
		})
	}
	for _, change := range []string{`{"metadata":{"annotations":{"machine.openshift.io/vCPU":"4"}}}`,
		`{"spec":{"replicas":9}}`} {
		err := operator.Patch(t.Context(), set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)))
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s on a MachineSet returned: %v", change, err)
		}
	}
}
