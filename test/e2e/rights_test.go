package e2e_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/scene"
)

// An attacker on a host has the daemon's credential. The test tries what the attacker can do with it: only changes of
// its own Node may succeed.
func TestA34_TheDaemonsCredentialIsGoodForItsOwnNodeOnly(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	daemon := s.as(t, s.stolen(t, hosts[0], contract.PathDaemonCertificate))
	mine, other := s.node(t, hosts[0]), s.node(t, hosts[1])
	version := s.instance(t, hosts[0]).Status.Revision
	pod := s.pod(t, hosts[0], 1)

	t.Run("it writes nothing of another Node", func(t *testing.T) {
		for what, patch := range map[string]string{
			"its version":      annotated(contract.RevisionAnnotation, "0"),
			"its labels":       `{"metadata":{"labels":{"a":"b"}}}`,
			"its taints":       `{"spec":{"taints":null}}`,
			"nothing about it": `{}`,
		} {
			refused(t, what, daemon.Patch(t.Context(), other.DeepCopy(), merge(patch)))
		}
		refused(t, "its status", daemon.Status().Patch(t.Context(), other.DeepCopy(),
			merge(`{"status":{"conditions":null}}`)))
		refused(t, "its deletion", daemon.Delete(t.Context(), other.DeepCopy()))
	})
	t.Run("it writes only the annotations of a daemon on its own Node", func(t *testing.T) {
		for what, patch := range map[string]string{
			"labels":                    `{"metadata":{"labels":{"a":"b"}}}`,
			"a label less":              `{"metadata":{"labels":{"` + contract.OSIDLabel + `":null}}}`,
			"taints":                    `{"spec":{"taints":null}}`,
			"its place in the schedule": `{"spec":{"unschedulable":true}}`,
			"the desired version":       annotated(contract.DesiredRevisionAnnotation, "0"),
			"what it is to fetch":       annotated(contract.StageAnnotation, "0"),
			"leave to reboot":           annotated(contract.RebootApprovedAnnotation, "0"),
			"a reboot request":          annotated(contract.RebootRequestedAnnotation, "0"),
			"the instance":              annotated(contract.InstanceAnnotation, "x/y"),
			"the host key":              annotated(contract.HostKeyAnnotation, "x"),
			"an annotation of its own":  annotated("example.com/x", "y"),
			"an annotation less": `{"metadata":{"annotations":{"` + contract.HybridSubnetAnnotation +
				`":null}}}`,
			"one right and one wrong": `{"metadata":{"annotations":{"` + contract.RevisionAnnotation +
				`":"0","example.com/x":"y"}}}`,
			"finalizers":                 `{"metadata":{"finalizers":["example.com/x"]}}`,
			"owners":                     `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"y"}]}}`,
			"a provider that is another": `{"spec":{"providerID":"x://y"}}`,
		} {
			refused(t, what, daemon.Patch(t.Context(), mine.DeepCopy(), merge(patch)))
		}
		refused(t, "its status", daemon.Status().Patch(t.Context(), mine.DeepCopy(),
			merge(`{"status":{"conditions":null}}`)))
		refused(t, "an update in place of a patch", daemon.Update(t.Context(), mine.DeepCopy()))
		refused(t, "its deletion", daemon.Delete(t.Context(), mine.DeepCopy()))
		refused(t, "another Node in its place",
			daemon.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}))
		for _, name := range []string{
			contract.RevisionAnnotation, contract.ApplyStatusAnnotation, contract.RebootRequiredAnnotation,
			contract.StagedAnnotation, contract.StagedBytesAnnotation,
			contract.StageStatusAnnotation, contract.BootIDAnnotation, contract.RebootPendingAnnotation,
			contract.CertificateEndAnnotation,
		} {
			before := mine.Annotations[name]
			if err := daemon.Patch(t.Context(), mine.DeepCopy(), merge(annotated(name, before+"x")),
				client.DryRunAll); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("it reads its manifest and no other ConfigMap", func(t *testing.T) {
		manifest := client.ObjectKey{Namespace: contract.OperatorNamespace,
			Name: contract.ServicesConfigMapPrefix + version}
		list := &corev1.ConfigMapList{}
		err := daemon.List(t.Context(), list, client.InNamespace(manifest.Namespace),
			client.MatchingFields{metav1.ObjectNameField: manifest.Name})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("the daemon sees %d manifests of its revision, error %v", len(list.Items), err)
		}
		refused(t, contract.InstancesConfigMap,
			daemon.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace,
				Name: contract.InstancesConfigMap}, &corev1.ConfigMap{}))
		refused(t, "a ConfigMap of another namespace",
			daemon.Get(t.Context(), client.ObjectKey{Namespace: "kube-system",
				Name: "extension-apiserver-authentication"}, &corev1.ConfigMap{}))
		refused(t, "the ConfigMaps of the namespace",
			daemon.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(contract.OperatorNamespace)))
		refused(t, "all ConfigMaps", daemon.List(t.Context(), &corev1.ConfigMapList{}))
		refused(t, "writing its manifest",
			daemon.Patch(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: manifest.Namespace,
				Name: manifest.Name}}, merge(`{"metadata":{"labels":{"a":"b"}}}`)))
	})
	t.Run("it reads no secret", func(t *testing.T) {
		for _, key := range []client.ObjectKey{
			{Namespace: contract.OperatorNamespace, Name: contract.PrivateKeySecret},
			{Namespace: contract.MachineConfigNamespace, Name: contract.BootstrapTokenSecret},
			{Namespace: contract.ConfigNamespace, Name: "pull-secret"},
		} {
			refused(t, key.String(), daemon.Get(t.Context(), key, &corev1.Secret{}))
			refused(t, "the secrets of "+key.Namespace,
				daemon.List(t.Context(), &corev1.SecretList{}, client.InNamespace(key.Namespace)))
		}
		refused(t, "all secrets", daemon.List(t.Context(), &corev1.SecretList{}))
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
			Name: contract.BootstrapServiceAccount}}
		refused(t, "a token of the bootstrapper",
			daemon.SubResource("token").Create(t.Context(), account, tokenRequest()))
	})
	t.Run("it touches nothing else", func(t *testing.T) {
		refused(t, "pods", daemon.List(t.Context(), &corev1.PodList{}))
		refused(t, "deleting a pod of its node", daemon.Delete(t.Context(), pod.DeepCopy()))
		refused(t, "instances", daemon.List(t.Context(), &v1alpha1.WindowsInstanceList{},
			client.InNamespace(contract.OperatorNamespace)))
		refused(t, "all requests", daemon.List(t.Context(), &certificatesv1.CertificateSigningRequestList{}))
	})
	t.Run("it approves no request, its own neither", func(t *testing.T) {
		config := s.stolen(t, hosts[0], contract.PathDaemonCertificate)
		name := "self-approved"
		if err := s.ask(t, name, daemonClient(config, hosts[1].Name)); err != nil {
			t.Fatal(err)
		}
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := daemon.Get(t.Context(), client.ObjectKey{Name: name}, csr); err != nil {
			t.Fatal(err)
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Me"}}
		refused(t, "approving", daemon.SubResource("approval").Update(t.Context(), csr))
		s.looked(t, name, "CSRRequesterWrong")
		if err := s.Client.Get(t.Context(), client.ObjectKey{Name: name}, csr); err != nil ||
			len(csr.Status.Certificate) > 0 {
			t.Errorf("the daemon of %s got a certificate for %s, %v", hosts[0].Name, hosts[1].Name, err)
		}
	})
	now := s.node(t, hosts[1])
	if _, labelled := now.Labels["a"]; labelled || now.Annotations[contract.RevisionAnnotation] != version ||
		len(now.Spec.Taints) == 0 {
		t.Errorf("Node %s changed: %v %v %v", now.Name, now.Labels, now.Annotations, now.Spec.Taints)
	}
}

// annotated returns a patch that sets an annotation.
func annotated(name, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value)
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// refused checks that the API server has refused a request.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s was not refused: %v", what, err)
	}
}

func tokenRequest() *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{}}
}

// In a cluster, the container's root file system is read-only, and its user is not root. The lab can't make the file
// system read-only. Instead, the test checks that the process finds no writable directory, and that it writes no file
// in directories where every user may write.
func TestA36_TheOperatorIsNotRootAndWritesNoFile(t *testing.T) {
	s := sharedStage(t)
	s.join(t, s.hosts(t, 1)...)
	pid := s.Operator.PID()
	if pid == 0 {
		t.Fatal("the operator is not running")
	}
	if os.Geteuid() == 0 {
		for field, want := range map[string]string{
			"Uid": strings.Repeat("65532 ", 4), "Gid": strings.Repeat("65532 ", 4), "Groups": "",
			"CapEff": "0000000000000000", "CapPrm": "0000000000000000",
		} {
			if got := processStatus(t, pid, field); strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("the operator process has %s %q, want %q", field, got, want)
			}
		}
		everybodys := []string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"}
		slices.Sort(everybodys)
		for _, dir := range slices.Compact(everybodys) {
			ownedBy(t, dir, scene.Nonroot)
		}
	}
	for _, path := range openForWriting(t, pid) {
		if path != s.Operator.Log {
			t.Errorf("the operator has the file %s open for writing", path)
		}
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "sealed")); err != nil || len(left) > 0 {
		t.Errorf("the operator wrote to its directory: %v %v", left, err)
	}
}

// processStatus returns a field of /proc/PID/status. It replaces runs of white space by a space.
func processStatus(t *testing.T, pid int, field string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return ""
}

// ownedBy reports an error for every file below a directory that a user owns.
func ownedBy(t *testing.T, dir string, user uint32) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // other processes create and delete files there all the time
		}
		if info, err := entry.Info(); err == nil && owner(info) == user {
			t.Errorf("the operator created %s", path)
		}
		return nil
	})
}

// openForWriting lists the files that a process has open for writing.
func openForWriting(t *testing.T, pid int) (paths []string) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "/dev/") {
			continue // the file was closed meanwhile, or it is a socket or a pipe
		}
		link, err := os.Lstat(filepath.Join(dir, e.Name()))
		if err == nil && link.Mode().Perm()&0o200 != 0 { // on Linux, the mode of the link shows how the file was opened
			paths = append(paths, target)
		}
	}
	return paths
}
