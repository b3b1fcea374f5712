package config_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// This test sends an API server with the installed manifests all requests that a daemon must be able to make, and
// requests that it must not be able to make. Refused means Forbidden, by RBAC or by a policy. Any other error, such
// as an invalid request, would prove nothing.
func TestA34_ADaemonIsKeptToItsOwnNode(t *testing.T) {
	t.Parallel()
	// The test has its own cluster because it grants too many rights, and because the operator's tests change the
	// Role that lets daemons read.
	lab := own(t, install, prepare)
	admin := connect(t, lab.Admin())
	register(t, admin, metav1.ObjectMeta{Name: "win-a"})
	register(t, admin, metav1.ObjectMeta{Name: "win-b"})
	daemon := as(t, lab, contract.DaemonUserPrefix+"win-a", contract.DaemonGroup)
	waitForPolicies(t, daemon)

	t.Run("allowed", func(t *testing.T) {
		for name, try := range allowedToDaemons(t) {
			t.Run(name, func(t *testing.T) {
				if err := try(t.Context(), daemon); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Run("refused", func(t *testing.T) {
		for name, try := range refusedToDaemons(t) {
			t.Run(name, func(t *testing.T) {
				if err := try(t.Context(), daemon); !apierrors.IsForbidden(err) {
					t.Errorf("the request was not forbidden, but returned: %v", err)
				}
			})
		}
	})
	t.Run("refused to other users in the group", func(t *testing.T) {
		mallory := as(t, lab, "mallory", contract.DaemonGroup)
		if err := annotate("win-a", contract.RevisionAnnotation)(t.Context(), mallory); !apierrors.IsForbidden(err) {
			t.Errorf("a user without a node's name: %v", err)
		}
	})
	t.Run("the policy holds without the rights", func(t *testing.T) {
		grantTooMuch(t, admin, daemon)
		for name, try := range onlyPolicyRefuses() {
			if err := try(t.Context(), daemon); !apierrors.IsForbidden(err) ||
				!strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("%s was not refused by a policy: %v", name, err)
			}
		}
	})
	t.Run("the refused requests changed no node", func(t *testing.T) {
		for _, name := range []string{"win-a", "win-b"} {
			node, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, taint := range node.Spec.Taints { // the controller manager adds its own taints
				if taint.Key == "a" {
					t.Errorf("node %s has the taint", name)
				}
			}
			if !maps.Equal(node.Labels, windowsLabels()) || len(node.Finalizers)+len(node.OwnerReferences)+len(node.Status.Addresses) != 0 ||
				node.Spec.Unschedulable || node.Spec.ProviderID != "" || node.Annotations["example.com/kept"] != "yes" {
				t.Errorf("node %s: %+v", name, node)
			}
		}
	})
}

// A kubelet may write its own Node, but not the annotations of the operator and the daemon.
func TestA54_AKubeletWritesNoAnnotationOfOurs(t *testing.T) {
	t.Parallel()
	lab := common(t)
	admin := connect(t, lab.Admin())
	a := register(t, admin, metav1.ObjectMeta{GenerateName: "win-"})
	kubelet := as(t, lab, contract.KubeletUserPrefix+a, contract.KubeletGroup)
	if err := errors.Join(annotate(a, contract.DesiredRevisionAnnotation)(t.Context(), admin),
		annotate(a, contract.InstanceAnnotation)(t.Context(), admin),
		patch(a, `{"metadata":{"labels":{"`+contract.OSIDLabel+`":"Windows"}},"spec":{"unschedulable":true}}`)(t.Context(),
			admin)); err != nil {
		t.Fatal(err)
	}
	other := patch(a, `{"metadata":{"annotations":{"`+contract.InstanceAnnotation+`":"ns/another"}}}`)
	tried := 0
	until(t, func(ctx context.Context) bool { // the API server enforces policies shortly after they were created
		tried++
		return refusedByPolicy(patch(a, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`,
			contract.StagedAnnotation, tried))(ctx, kubelet))
	})
	tries(t, kubelet, map[string]attempt{
		"names another instance": other,
		"names another instance by its status": patch(a,
			`{"metadata":{"annotations":{"`+contract.InstanceAnnotation+`":"ns/another"}}}`, "status"),
		"names no instance": patch(a, `{"metadata":{"annotations":{"`+contract.InstanceAnnotation+`":null}}}`),
		"chooses its revision": patch(a,
			`{"metadata":{"annotations":{"`+contract.DesiredRevisionAnnotation+`":"0.1.0-0000000000"}}}`),
		"reports in the daemon's place": annotate(a, contract.RevisionAnnotation),
		"calls itself Linux":            patch(a, `{"metadata":{"labels":{"kubernetes.io/os":"linux"}}}`),
		"calls itself nothing":          patch(a, `{"metadata":{"labels":{"kubernetes.io/os":null}}}`),
		"calls itself Linux by its status": patch(a, `{"metadata":{"labels":{"kubernetes.io/os":"linux"}}}`,
			"status"),
		"leaves the budget": patch(a, `{"metadata":{"labels":{"`+contract.OSIDLabel+`":null}}}`),
		"leaves the budget by its status": patch(a, `{"metadata":{"labels":{"`+contract.OSIDLabel+`":"Linux"}}}`,
			"status"),
		"keeps its Node from being deleted": patch(a, `{"metadata":{"finalizers":["example.com/stay"]}}`),
		"lifts its cordon":                  patch(a, `{"spec":{"unschedulable":null}}`),
		"registers with one": func(ctx context.Context, c kubernetes.Interface) error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-new",
				Annotations: map[string]string{contract.InstanceAnnotation: "ns/another"}}}
			_, err := as(t, lab, contract.KubeletUserPrefix+"win-new", contract.KubeletGroup).CoreV1().Nodes().
				Create(ctx, node, metav1.CreateOptions{})
			return err
		},
	}, refusedByPolicy)
	// The operator has cordoned this Node, and then its instance was deleted.
	if err := patch(a, `{"metadata":{"annotations":{"`+contract.InstanceAnnotation+`":null}}}`)(t.Context(),
		admin); err != nil {
		t.Fatal(err)
	}
	tries(t, kubelet, map[string]attempt{
		"orphaned, calls itself Linux":   patch(a, `{"metadata":{"labels":{"kubernetes.io/os":"linux"}}}`),
		"orphaned, lifts its cordon":     patch(a, `{"spec":{"unschedulable":null}}`),
		"orphaned, is not to be deleted": patch(a, `{"metadata":{"finalizers":["example.com/stay"]}}`),
	}, refusedByPolicy)
	tries(t, kubelet, map[string]attempt{
		"writes an annotation of its own": annotate(a, "volumes.kubernetes.io/controller-managed-attach-detach"),
		"reports its status": patch(a, `{"status":{"nodeInfo":{"kernelVersion":"10.0.20348"}}}`,
			"status"),
	}, func(err error) bool { return err == nil })
	linuxKubelet := as(t, lab, contract.KubeletUserPrefix+linux, contract.KubeletGroup)
	if err := patch(linux, `{"status":{"nodeInfo":{"kernelVersion":"6.1"}}}`, "status")(t.Context(),
		linuxKubelet); err != nil {
		t.Error(err)
	}
}

// attempt is a request that a client makes.
type attempt func(ctx context.Context, c kubernetes.Interface) error

func allowedToDaemons(t *testing.T) map[string]attempt {
	t.Helper()
	request := daemonRequest(t, "wicd-win-a-1")
	all := map[string]attempt{
		"says the version that holds": annotate("win-a", contract.RevisionAnnotation),
		"says why it does not hold":   annotate("win-a", contract.ApplyStatusAnnotation),
		"asks for a reboot":           annotate("win-a", contract.RebootRequiredAnnotation),
		"applies what it says": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Nodes().Patch(ctx, "win-a", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Node",`+
				`"metadata":{"annotations":{"`+contract.BootIDAnnotation+`":"1"}}}`), metav1.PatchOptions{FieldManager: "wicd"})
			return err
		},
		"takes back what it said": patch("win-a",
			`{"metadata":{"annotations":{"`+contract.RevisionAnnotation+`":null}}}`),
		"writes nothing new":           patch("win-a", `{}`),
		"lists its own Node":           listNode("win-a"),
		"reads the published manifest": listConfigMap("windows-services-1"),
		"reads the Secret beside it":   listSecret("windows-services-1"),
		"asks for its certificate and waits": func(ctx context.Context,
			c kubernetes.Interface) error {
			return ask(ctx, c, request)
		},
	}
	maps.Copy(all, eventsOfDaemons())
	return all
}

func refusedToDaemons(t *testing.T) map[string]attempt {
	t.Helper()
	all := map[string]attempt{
		"annotates another Node":                 annotate("win-b", contract.RevisionAnnotation),
		"empties a patch of another Node":        patch("win-b", `{}`),
		"writes its desired version":             annotate("win-a", contract.DesiredRevisionAnnotation),
		"writes whose Node it is":                annotate("win-a", contract.InstanceAnnotation),
		"writes the key's hash":                  annotate("win-a", contract.PublicKeyHashAnnotation),
		"takes the operator's cordon as its own": annotate("win-a", contract.CordonedAnnotation),
		"A55 writes an annotation without end": patch("win-a", `{"metadata":{"annotations":{"`+
			contract.ApplyStatusAnnotation+`":"`+strings.Repeat("x", 240_000)+`"}}}`),
		"writes a foreign annotation":              annotate("win-a", "example.com/new"),
		"writes an annotation that looks like one": annotate("win-a", contract.RevisionAnnotation+"2"),
		"changes a foreign annotation":             annotate("win-a", "example.com/kept"),
		"removes a foreign annotation": patch("win-a",
			`{"metadata":{"annotations":{"example.com/kept":null}}}`),
		"removes all annotations": patch("win-a", `{"metadata":{"annotations":null}}`),
		"hides a label behind its annotation": patch("win-a",
			`{"metadata":{"annotations":{"`+contract.RevisionAnnotation+`":"2"},"labels":{"a":"b"}}}`),
		"labels its Node as control plane": patch("win-a",
			`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		"removes its taints": patch("win-a", `{"spec":{"taints":null}}`),
		"adds a taint":       patch("win-a", `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`),
		"cordons its Node":   patch("win-a", `{"spec":{"unschedulable":true}}`),
		"sets a provider":    patch("win-a", `{"spec":{"providerID":"aws:///i-1"}}`),
		"A55 hides a load in a field that nothing uses any more": patch("win-a",
			`{"metadata":{"selfLink":"`+strings.Repeat("x", 500_000)+`"}}`),
		"sets a finalizer": patch("win-a", `{"metadata":{"finalizers":["example.com/stay"]}}`),
		"sets an owner": patch("win-a",
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]}}`),
		"reads its Node outside of a list": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Nodes().Get(ctx, "win-a", metav1.GetOptions{})
			return err
		},
		"replaces its Node":     replace("win-a"),
		"replaces another Node": replace("win-b"),
		"deletes its Node": func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Nodes().Delete(ctx, "win-a", metav1.DeleteOptions{})
		},
		"makes a Node":                 makeNode,
		"writes its Node's status":     patchStatus("win-a"),
		"writes another Node's status": patchStatus("win-b"),
		"reads the private key":        readSecret(contract.OperatorNamespace, contract.PrivateKeySecret),
		"reads a secret elsewhere":     readSecret("kube-system", "any"),
		"lists secrets": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"reads a published Secret that no node uses": readSecret(contract.OperatorNamespace, "windows-services-0"),
		"lists the secrets of our namespace":         listSecret(""),
		"writes the published Secret":                writeSecret,
		"reads the list of hosts": readConfigMap(contract.OperatorNamespace,
			contract.InstancesConfigMap),
		"reads a manifest that no node uses":    readConfigMap(contract.OperatorNamespace, "windows-services-0"),
		"reads a ConfigMap elsewhere":           readConfigMap("kube-system", "extension-apiserver-authentication"),
		"lists the ConfigMaps of our namespace": listConfigMap(""),
		"writes the published manifest":         writeConfigMap,
		"reads the instances": raw("/apis/windowsmachineconfig.openshift.io/v1alpha1/namespaces/" +
			contract.OperatorNamespace + "/windowsinstances"),
		"reads the settings": raw("/apis/windowsmachineconfig.openshift.io/v1alpha1/windowsmachineconfigs"),
		"reads pods": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		},
		"mints a token of the bootstrapper": token(contract.OperatorNamespace, contract.BootstrapServiceAccount),
		"mints a token of the operator":     token(contract.OperatorNamespace, contract.OperatorServiceAccount),
		"reads all certificate requests": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
			return err
		},
		"approves its own request": approve,
		"widens its own rights":    widen,
	}
	maps.Copy(all, eventsOfNoDaemon())
	maps.Copy(all, rightsThatEventsNeedNot())
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequestSpec){
		"asks for a serving certificate": func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = certificatesv1.KubeletServingSignerName
		},
		"asks for a kubelet's certificate": func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		},
		"asks some other signer": func(
			s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = "example.com/any"
		},
		"asks for a certificate without end": func(
			s *certificatesv1.CertificateSigningRequestSpec) {
			s.ExpirationSeconds = nil
		},
		"asks for ten years": func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.ExpirationSeconds = new(int32(10 * 365 * 24 * 3600))
		},
		"asks for 32 days": func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.ExpirationSeconds = new(int32(32 * 24 * 3600))
		},
		"asks for a certificate to serve with": func(
			s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages[1] = certificatesv1.UsageServerAuth
		},
		"asks with a hundred kilobytes": func(s *certificatesv1.CertificateSigningRequestSpec) {
			names := slices.Repeat([]string{strings.Repeat("x", 60) + ".example.com"}, 1400)
			s.Request = daemonRequestFor(t, "any", names...).Spec.Request
		},
		"asks for a certificate to sign others with": func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = append(s.Usages, certificatesv1.UsageCertSign)
		},
	} {
		request := daemonRequest(t, "wicd-win-a-2")
		change(&request.Spec)
		all[name] = func(ctx context.Context, c kubernetes.Interface) error { return ask(ctx, c, request) }
	}
	for name, load := range loads("v1") {
		all["A55 hides a load in its Node's managed fields: "+name] = patch("win-a", withManaged(load))
	}
	for name, meta := range metadataOfNoRequest() {
		request := daemonRequest(t, "wicd-win-a-2")
		meta.Name = request.Name
		request.ObjectMeta = meta
		all[name] = func(ctx context.Context, c kubernetes.Interface) error { return ask(ctx, c, request) }
	}
	return all
}

// withManaged returns a patch that sets managed fields.
func withManaged(load []metav1.ManagedFieldsEntry) string {
	content, err := json.Marshal(load)
	if err != nil {
		panic(err)
	}
	return `{"metadata":{"managedFields":` + string(content) + `}}`
}

// metadataOfNoRequest returns metadata that certificate requests must not have. It would fill the memory of clients
// that watch requests. A finalizer would also keep the requests for ever.
func metadataOfNoRequest() map[string]metav1.ObjectMeta {
	return map[string]metav1.ObjectMeta{
		"asks with a finalizer": {Finalizers: []string{"example.com/stay"}},
		"asks with an owner": {OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace",
			Name: "default", UID: "a"}}},
		"A55 asks with a load in managed fields": {ManagedFields: loads("certificates.k8s.io/v1")["one long name"]},
		"A55 asks with many managers":            {ManagedFields: loads("certificates.k8s.io/v1")["many managers"]},
		"asks with a label":                      {Labels: map[string]string{"a": "b"}},
		"asks with an annotation of 200 kilobytes": {Annotations: map[string]string{
			"example.com/a": strings.Repeat("x", 200_000)}},
	}
}

// onlyPolicyRefuses returns requests that RBAC allows after grantTooMuch, so that only a policy can refuse them.
func onlyPolicyRefuses() map[string]attempt {
	all := map[string]attempt{
		"writing its Node's status":     patchStatus("win-a"),
		"writing another Node's status": patchStatus("win-b"),
		"replacing another Node":        replace("win-b"),
		"annotating another Node":       annotate("win-b", contract.RevisionAnnotation),
		"labelling its Node":            patch("win-a", `{"metadata":{"labels":{"a":"b"}}}`),
		"making a Node":                 makeNode,
		"deleting its Node": func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Nodes().Delete(ctx, "win-a", metav1.DeleteOptions{})
		},
		"deleting another Node": func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Nodes().Delete(ctx, "win-b", metav1.DeleteOptions{})
		},
	}
	maps.Copy(all, eventsOfNoDaemon())
	return all
}

func TestTheOperatorHasItsRightsAndNoMore(t *testing.T) {
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
	t.Run("A34 the policy does not bind the operator", func(t *testing.T) {
		if err := patch(b, `{"metadata":{"labels":{"node-role.kubernetes.io/worker":""}}}`)(t.Context(),
			operator); err != nil {
			t.Error(err)
		}
	})
	t.Run("only the operator releases a host", func(t *testing.T) {
		mark := annotate(b, contract.ReleasedAnnotation)
		for name, try := range map[string]attempt{
			"an administrator": mark,
			"by its status": patch(b, `{"metadata":{"annotations":{"`+contract.ReleasedAnnotation+`":"x"}}}`,
				"status"),
		} {
			if err := try(t.Context(), admin); !refusedByPolicy(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := mark(t.Context(), operator); err != nil {
			t.Error(err)
		}
		if err := annotate(b, "other")(t.Context(), admin); err != nil {
			t.Error("the node can no longer be changed:", err)
		}
		if err := patch(b, `{"metadata":{"annotations":{"`+contract.ReleasedAnnotation+`":null}}}`)(t.Context(),
			admin); err != nil {
			t.Error("the annotation can't be removed:", err)
		}
	})
	for name, try := range map[string]attempt{
		"reads the private key":             readSecret(contract.OperatorNamespace, contract.PrivateKeySecret),
		"mints a token of the bootstrapper": mint("windows-bootstrap-1", 3600),
		"reads the list of hosts":           readConfigMap(contract.OperatorNamespace, contract.InstancesConfigMap),
		"tells an event about a Node":       tellEvent(a),
		"reads all certificate requests": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
			return err
		},
		"lets daemons read another manifest":  letDaemonsRead("configmaps", "windows-services-0"),
		"lets daemons read its Secret":        letDaemonsRead("secrets", "windows-services-0"),
		"tells daemons of the payload server": letDaemonsRead("configmaps", contract.PayloadSourceConfigMap),
		"knows who signs clients":             readConfigMap("kube-system", "extension-apiserver-authentication"),
		"asks for the certificate of a daemon": func(ctx context.Context, c kubernetes.Interface) error {
			return ask(ctx, c, daemonRequest(t, "wicd-"+a+"-3"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := try(t.Context(), operator); err != nil {
				t.Error(err)
			}
		})
	}
	for name, try := range map[string]attempt{
		"A36 reads another secret of the cluster": readSecret(contract.ConfigNamespace, "other"),
		"A36 lists secrets": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"A36 reads a ConfigMap elsewhere":      readConfigMap("kube-system", "kube-root-ca.crt"),
		"A36 reads more than one there":        readConfigMap("kube-system", "kubeadm-config"),
		"A36 mints a token of its own account": token(contract.OperatorNamespace, contract.OperatorServiceAccount),
		"A36 mints a token of another account": token("kube-system", "default"),
		"A36 mints a token of OpenShift's own bootstrapper": mintIn(contract.MachineConfigNamespace,
			"windows-bootstrap-1", 3600),
		"A36 lets daemons read a secret":          letDaemonsRead("secrets", "other"),
		"A36 lets daemons read the private key":   letDaemonsRead("secrets", contract.PrivateKeySecret),
		"A36 lets daemons read the list of hosts": letDaemonsRead("configmaps", contract.InstancesConfigMap),
		"A36 lets daemons read all ConfigMaps":    letDaemonsRead("configmaps", ""),
		"A36 makes a Node":                        makeNode,
		"A36 writes a Node's status":              patchStatus(a),
		"A36 makes itself an administrator":       widen,
		"A36 deletes the bootstrapper's secret": deleteSecret(contract.MachineConfigNamespace,
			contract.BootstrapTokenSecret),
		"A36 deletes the private key": deleteSecret(contract.OperatorNamespace, contract.PrivateKeySecret),
		"A36 makes a token of its own account": makeSecret(contract.OperatorNamespace, "windows-services-2",
			corev1.SecretTypeServiceAccountToken),
		"A36 makes a token of the bootstrapper": makeSecret(contract.OperatorNamespace, "windows-bootstrap-a",
			corev1.SecretTypeServiceAccountToken),
		"A36 makes a Secret beside OpenShift's bootstrapper": makeSecret(contract.MachineConfigNamespace,
			"windows-bootstrap-a", contract.BootstrapSecretType),
		"A36 makes a Secret of any name": makeSecret(contract.OperatorNamespace, "other-2", corev1.SecretTypeOpaque),
		"A36 makes a Secret of another name there": makeSecret(contract.MachineAPINamespace, "worker-user-data",
			corev1.SecretTypeOpaque),
	} {
		t.Run(name, func(t *testing.T) {
			if err := try(t.Context(), operator); !apierrors.IsForbidden(err) {
				t.Errorf("the request was not forbidden, but returned: %v", err)
			}
		})
	}
}

func deleteSecret(namespace, name string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
}

func makeSecret(namespace, name string, kind corev1.SecretType) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		secret := &corev1.Secret{Type: kind, ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			corev1.ServiceAccountNameKey: contract.OperatorServiceAccount}}}
		_, err := c.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
		return err
	}
}

// windowsLabels returns the labels that a kubelet sets on its Node, and the older label that the controller manager
// adds.
func windowsLabels() map[string]string {
	return map[string]string{corev1.LabelOSStable: string(corev1.Windows), "beta.kubernetes.io/os": "windows"}
}

// waitForPolicies waits until the API server enforces the policies for daemons. It does so shortly after they were
// created.
func waitForPolicies(t *testing.T, daemon kubernetes.Interface) {
	t.Helper()
	label := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	foreign := daemonRequest(t, "probe")
	foreign.Spec.SignerName = "example.com/any"
	dry := []string{metav1.DryRunAll}
	until(t, func(ctx context.Context) bool {
		_, node := daemon.CoreV1().Nodes().Patch(ctx, "win-a", types.MergePatchType, label,
			metav1.PatchOptions{DryRun: dry})
		_, request := daemon.CertificatesV1().CertificateSigningRequests().Create(ctx, foreign,
			metav1.CreateOptions{DryRun: dry})
		_, event := daemon.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, eventOf("win-b"),
			metav1.CreateOptions{DryRun: dry})
		return refusedByPolicy(node) && refusedByPolicy(request) && refusedByPolicy(event)
	})
}

// waitForOperatorPolicies waits until the API server enforces the policies for the operator. It tests this with a
// Windows Node.
func waitForOperatorPolicies(t *testing.T, admin, operator kubernetes.Interface, node string) {
	t.Helper()
	until(t, func(ctx context.Context) bool {
		_, err := operator.CoreV1().Secrets(contract.OperatorNamespace).Create(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		_, release := admin.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+contract.ReleasedAnnotation+`":"probe"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		_, other := operator.CoreV1().Nodes().Patch(ctx, linux, types.MergePatchType, []byte(`{}`), dry)
		_, request := operator.CertificatesV1().CertificateSigningRequests().Create(ctx, daemonRequest(t, "probe"),
			metav1.CreateOptions{DryRun: dry.DryRun})
		return refusedByPolicy(err) && refusedByPolicy(release) && refusedByPolicy(other) && refusedByPolicy(request) &&
			refusedByPolicy(letDaemonsRead("secrets", "probe")(ctx, operator)) &&
			refusedByPolicy(mint("probe", 3600)(ctx, operator))
	})
}

func refusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

// grantTooMuch gives daemons rights that a careless administrator might give.
func grantTooMuch(t *testing.T, admin, daemon kubernetes.Interface) {
	t.Helper()
	_, err := admin.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "too-much"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"},
				Verbs: []string{"*"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(),
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "too-much"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "too-much"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
				Name: contract.DaemonGroup}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "nodes", Name: "win-b"}}}
	until(t, func(ctx context.Context) bool {
		answer, err := daemon.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed
	})
}

func until(t *testing.T, done func(ctx context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) { return done(ctx), nil })
	if err != nil {
		t.Fatal(err)
	}
}

func as(t *testing.T, lab *cluster.Cluster, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config, err := lab.UserConfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, config)
}

func connect(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func annotate(node, key string) attempt {
	return patch(node, `{"metadata":{"annotations":{"`+key+`":"x"}}}`)
}

func patch(node, content string, subresources ...string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(content), metav1.PatchOptions{},
			subresources...)
		return err
	}
}

func patchStatus(node string) attempt {
	return patch(node, `{"status":{"addresses":[{"type":"InternalIP","address":"172.30.0.1"}]}}`, "status")
}

func replace(node string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Nodes().Update(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			metav1.UpdateOptions{})
		return err
	}
}

func makeNode(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-c"}},
		metav1.CreateOptions{})
	return err
}

func listNode(name string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		list, err := c.CoreV1().Nodes().List(ctx, onlyThe(name))
		if err == nil && len(list.Items) != 1 {
			return errors.New("the list does not have exactly one Node")
		}
		return err
	}
}

// readSecret reads a Secret by a get, and if this fails, by a list of one object, as caches do.
func readSecret(namespace, name string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		if _, err := c.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			return nil
		}
		_, err := c.CoreV1().Secrets(namespace).List(ctx, onlyThe(name))
		return err
	}
}

// onlyThe returns options for a list of one object.
func onlyThe(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + name}
}

// readConfigMap reads a ConfigMap in the same two ways.
func readConfigMap(namespace, name string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		if _, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			return nil
		}
		_, err := c.CoreV1().ConfigMaps(namespace).List(ctx, onlyThe(name))
		return err
	}
}

// listConfigMap lists ConfigMaps as the daemon does: one by its name, or all if the name is empty.
func listConfigMap(name string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		options := metav1.ListOptions{}
		if name != "" {
			options = onlyThe(name)
		}
		list, err := c.CoreV1().ConfigMaps(contract.OperatorNamespace).List(ctx, options)
		if err == nil && len(list.Items) != 1 {
			return errors.New("the list does not have exactly one ConfigMap")
		}
		return err
	}
}

// listSecret lists Secrets in the same way.
func listSecret(name string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		options := metav1.ListOptions{}
		if name != "" {
			options = onlyThe(name)
		}
		list, err := c.CoreV1().Secrets(contract.OperatorNamespace).List(ctx, options)
		if err == nil && len(list.Items) != 1 {
			return errors.New("the list does not have exactly one Secret")
		}
		return err
	}
}

func writeSecret(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.CoreV1().Secrets(contract.OperatorNamespace).Patch(ctx, "windows-services-1", types.MergePatchType,
		[]byte(`{"data":{"a":"Yg=="}}`), metav1.PatchOptions{})
	return err
}

func writeConfigMap(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.CoreV1().ConfigMaps(contract.OperatorNamespace).Patch(ctx, "windows-services-1", types.MergePatchType,
		[]byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	return err
}

// letDaemonsRead writes the role of the daemons in the operator's namespace.
func letDaemonsRead(resource, name string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		list, err := c.RbacV1().Roles(contract.OperatorNamespace).List(ctx, onlyThe(contract.ServicesReaderRole))
		if err != nil || len(list.Items) != 1 {
			return errors.Join(err, fmt.Errorf("%d roles", len(list.Items)))
		}
		role := &list.Items[0]
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource},
			Verbs: []string{"list", "watch"}}}
		if name != "" {
			role.Rules[0].ResourceNames = []string{name}
		}
		_, err = c.RbacV1().Roles(contract.OperatorNamespace).Update(ctx, role, metav1.UpdateOptions{})
		return err
	}
}

func raw(path string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().RESTClient().Get().AbsPath(path).Do(ctx).Error()
	}
}

func token(namespace, account string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{},
			metav1.CreateOptions{})
		return err
	}
}

// tellEvent creates an event about an object without a namespace, such as a Node or a certificate request.
func tellEvent(node string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.EventsV1().Events(metav1.NamespaceDefault).Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: node + ".1"}, EventTime: metav1.NowMicro(), ReportingController: "test",
			ReportingInstance: "test",
			Action:            "Try", Reason: "Tried", Type: corev1.EventTypeNormal,
			Regarding: corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
		return err
	}
}

// ask creates a certificate request and reads it back.
func ask(ctx context.Context, c kubernetes.Interface, request *certificatesv1.CertificateSigningRequest) error {
	requests := c.CertificatesV1().CertificateSigningRequests()
	if _, err := requests.Create(ctx, request, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := requests.Get(ctx, request.Name, metav1.GetOptions{}); err == nil {
		return nil // the daemon reads it in the same way
	}
	_, err := requests.List(ctx, onlyThe(request.Name))
	return err
}

func approve(ctx context.Context, c kubernetes.Interface) error {
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "wicd-win-a-1"}}
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Mine"}}
	_, err := c.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request,
		metav1.UpdateOptions{})
	return err
}

func widen(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.RbacV1().ClusterRoleBindings().Create(ctx,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mine"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
				Name: contract.DaemonGroup}}}, metav1.CreateOptions{})
	return err
}

// daemonRequest returns the request of the daemon of win-a for the renewal of its certificate.
func daemonRequest(t *testing.T, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return daemonRequestFor(t, name)
}

// daemonRequestFor is like daemonRequest, with additional names in the certificate.
func daemonRequestFor(t *testing.T, name string, names ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: contract.DaemonUserPrefix + "win-a", Organization: []string{contract.DaemonGroup}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject,
		DNSNames: names}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: new(int32(14 * 24 * 3600)),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature,
				certificatesv1.UsageClientAuth},
		},
	}
}
