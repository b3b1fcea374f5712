package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// secretUser is the hosts' user name. It is a rare word, so that a search finds only this name in the operator's
// output. On the host, the name is no secret.
const secretUser = "quetzal"

func TestA35_SecretsAreNowhereToBeRead(t *testing.T) {
	t.Parallel()
	o := options(6)
	o.Hosts.Edit = func(_ int, o *sim.Options) { o.User = secretUser }
	o.Hosts.Faults = []fleet.Fault{fleet.FaultAuth, fleet.FaultUnreachable, fleet.FaultPort}
	s := own(t, o)
	hosts := s.hosts(t, 6)
	broken, whole := hosts[:3], hosts[3:]
	// One host joins only after its connection broke during the join and a service did not start, so that every
	// step reports errors.
	whole[0].Server.Change(func(o *sshd.Settings) { o.Faults = sshd.Faults{Drop: &sshd.Drop{After: 20000, Times: 1}} })
	whole[1].Machine.FailService(contract.ServiceContainerd, true)
	s.add(t, hosts...)
	s.ready(t, whole[0], whole[2])
	for _, h := range append(slices.Clone(broken), whole[1]) {
		s.await(t, "the reason of "+h.Name, func(ctx context.Context) (bool, string, error) {
			i, err := s.Instance(ctx, h)
			return err == nil && i.Status.Failures > 0, "", client.IgnoreNotFound(errors.Unwrap(err))
		})
	}
	whole[1].Machine.FailService(contract.ServiceContainerd, false)
	s.retryNow(t, whole[1])
	s.ready(t, whole...)
	for _, h := range whole {
		s.await(t, "kubelet's bootstrap credential to be deleted from "+h.Name, func(context.Context) (bool, string,
			error) {
			there, err := winos.Exists(h.Machine.Host().Files, contract.PathBootstrapKubeconfig)
			return !there, "", err
		})
		privateFiles(t, h)
	}
	secrets := s.secrets(t, s.account(t, contract.OperatorNamespace, contract.BootstrapServiceAccount), whole...)
	s.drop(t, whole[2], broken[2])
	s.gone(t, whole[2], broken[2])

	said := s.said(t)
	for place, text := range said {
		if strings.Contains(text, secretUser) {
			t.Errorf("the user name of the hosts appears in %s", place)
		}
	}
	for _, h := range hosts {
		said["the command lines of "+h.Name] = strings.Join(h.Machine.CommandLines(), "\n")
		walk(t, h, contract.DirLog, func(path string,
			_ bool) {
			said[path+" of "+h.Name] = string(hostFile(t, h, path))
		})
	}
	if len(said) < 20 {
		t.Errorf("the test searched only %d places", len(said))
	}
	for place, text := range said {
		for what, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s appears in %s: …%.80q…", what, place, text[max(0, at-60):at])
			}
		}
	}
}

// secrets returns texts that must not appear in any output, by their origin.
func (s *stage) secrets(t *testing.T, bootstrap *rest.Config, hosts ...*fleet.Host) map[string]string {
	t.Helper()
	token := bootstrap.BearerToken
	header, _, _ := strings.Cut(token, ".") // the header names the signing key, so all tokens begin alike
	all := map[string]string{
		"a bearer token":                  header + ".",
		"a private key":                   "PRIVATE KEY-----",
		"an encoded private key":          encoded("-----BEGIN EC PRIVATE KEY-----"),
		"an encoded SSH key":              encoded("-----BEGIN OPENSSH PRIVATE KEY-----"),
		"an encoded kubeconfig":           encoded(kubeconfigStart),
		"a piece of the SSH key":          body(s.Key.PEM),
		"the password of the pull secret": "bGFiOmxhYg==",
	}
	// First, show that the search works: these texts must be found in the files that contain the secrets.
	kubeconfig, err := os.ReadFile(filepath.Join(s.Dir, "operator.kubeconfig"))
	if err != nil || !strings.HasPrefix(string(kubeconfig), kubeconfigStart) ||
		!strings.Contains(string(kubeconfig), all["a bearer token"]) ||
		!strings.Contains(base64.StdEncoding.EncodeToString(kubeconfig), all["an encoded kubeconfig"]) ||
		!strings.Contains(base64.StdEncoding.EncodeToString(s.Key.PEM), all["an encoded SSH key"]) {
		t.Fatalf("a search for secrets finds none in the operator's own kubeconfig, so this test can't fail: %v", err)
	}
	for _, h := range hosts {
		all["a piece of the daemon's key of "+h.Name] = body(hostFile(t, h, contract.PathDaemonCertificate))
		all["a piece of kubelet's key of "+h.Name] = body(hostFile(t, h, kubeletCredential))
	}
	return all
}

// kubeconfigStart is the beginning of the kubeconfigs that this project writes.
const kubeconfigStart = "apiVersion: v1\nclusters:\n- cluster:\n"

// encoded returns the base64 prefix that every text with this beginning has.
func encoded(text string) string {
	return base64.StdEncoding.EncodeToString([]byte(text[:len(text)/3*3]))
}

// body returns a line from the middle of the private key in a PEM text. It finds the key in every format that keeps the
// lines.
func body(pem []byte) string {
	_, key, _ := strings.Cut(string(pem), "PRIVATE KEY-----\n")
	lines := strings.Split(key, "\n")
	return lines[1]
}

// said returns all output of the operator, by place: log, process, events, objects.
func (s *stage) said(t *testing.T) map[string]string {
	t.Helper()
	log, err := os.ReadFile(s.Operator.Log)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{"the operator's log": string(log)}
	if pid := s.Operator.PID(); pid != 0 {
		for _, name := range []string{"cmdline", "environ"} {
			content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			said["the operator's "+name] = string(content)
		}
	}
	for what, list := range map[string]client.ObjectList{
		"events": &corev1.EventList{}, "nodes": &corev1.NodeList{},
		"the status of the settings": &v1alpha1.WindowsMachineConfigList{}, "manifests": &corev1.ConfigMapList{},
	} {
		said[what] = s.read(t, list)
	}
	if s.Cloud != nil {
		said["the machines"] = s.read(t, &machinev1beta1.MachineList{})
	}
	instances := &v1alpha1.WindowsInstanceList{}
	if err = s.Client.List(t.Context(), instances); err != nil {
		t.Fatal(err)
	}
	for _, i := range instances.Items {
		said["the status of instance "+i.Name] = text(t, i.Status)
		said["the metadata of instance "+i.Name] = text(t, i.Annotations) + text(t, i.Labels)
	}
	return said
}

func (s *stage) read(t *testing.T, list client.ObjectList) string {
	t.Helper()
	if err := s.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if maps, ok := list.(*corev1.ConfigMapList); ok {
		// ignore windows-instances, because the user wrote it
		maps.Items = slices.DeleteFunc(maps.Items,
			func(c corev1.ConfigMap) bool { return c.Name == contract.InstancesConfigMap })
	}
	return text(t, list)
}

func text(t *testing.T, object any) string {
	t.Helper()
	content, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// privateFiles checks that on a host only Administrators can read files with secrets, and that no request file is left.
func privateFiles(t *testing.T, h *fleet.Host) {
	t.Helper()
	private := map[string]bool{}
	walk(t, h, `C:\`, func(path string, restricted bool) {
		private[strings.ToLower(path)] = restricted
		content := string(hostFile(t, h, path))
		if secret := strings.Contains(content, "PRIVATE KEY-----") || strings.Contains(content, "eyJhbGciOi"); secret &&
			!restricted {
			t.Errorf("%s: %s contains a secret, and other users can read it", h.Name, path)
		}
		if strings.Contains(content, "eyJhbGciOi") {
			t.Errorf("%s: %s contains a token", h.Name, path)
		}
		if strings.Contains(path, contract.RPCDir+`\`) &&
			strings.Contains(path, ".json") { // a complete or partial request or answer
			t.Errorf("%s: %s was not deleted", h.Name, path)
		}
	})
	for _, path := range []string{
		contract.PathKubeconfig, contract.PathDaemonKubeconfig, contract.PathDaemonCertificate, contract.PathState,
		kubeletCredential,
		contract.DirKubeletPKI + `\kubelet-server-current.pem`,
	} {
		if restricted, there := private[strings.ToLower(path)]; !there || !restricted {
			t.Errorf("%s: %s: exists: %v, only Administrators can read it: %v", h.Name, path, there, restricted)
		}
	}
	// On real Windows, files that kubelet and other programs create inherit the rights of their directory.
	for _, dir := range []string{contract.DirK, contract.DirDaemonCerts, contract.DirTLS, contract.DirCNIConfig,
		contract.DirKubeletPKI} {
		info, err := h.Machine.Host().Files.Stat(dir)
		if err != nil || info.Access != winos.AccessAdministrators {
			t.Errorf("%s: other users can read new files in %s: %v", h.Name, dir, err)
		}
	}
}

// walk calls visit for each file below a directory of a host. restricted reports whether only Administrators may
// access the file or a directory above it.
func walk(t *testing.T, h *fleet.Host, dir string, visit func(path string, restricted bool)) {
	t.Helper()
	files := h.Machine.Host().Files
	var down func(dir string, restricted bool)
	down = func(dir string, restricted bool) {
		entries, err := files.List(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("listing %s of %s: %v", dir, h.Name, err)
		}
		for _, e := range entries {
			path, restricted := strings.TrimSuffix(dir, `\`)+`\`+e.Name, restricted ||
				e.Access == winos.AccessAdministrators
			if e.Dir {
				down(path, restricted)
			} else {
				visit(path, restricted)
			}
		}
	}
	down(dir, false)
}
