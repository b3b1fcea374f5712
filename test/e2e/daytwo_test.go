package e2e_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/cluster/clustertest"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/openshift"
)

// look says whether a host is as it must be, and if not, how it is.
type look func(ctx context.Context, h *fleet.Host) (bool, string, error)

// Each step is what an administrator or the cluster does on day 2; every node must follow, with its services running, over no SSH and without a reboot. The
// steps follow each other on one scene.
func TestDay2ReachesEveryNodeWithoutSSH(t *testing.T) {
	s := own(t, options(2))
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	boots := map[*fleet.Host]string{}
	for _, h := range hosts {
		facts, err := h.Machine.Host().System.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		boots[h] = facts.BootID
	}
	authority := newAuthority(t, "proxy")
	own := newAuthority(t, "own")
	rotated := newAuthority(t, "rotated")
	var serving []byte
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
		look look
		// restarts are the services that get another process; the others keep theirs.
		restarts []string
	}{
		{"A22 a mirror is made", func(t *testing.T) {
			mirrors := []configv1.ImageTagMirrors{{Source: "quay.example/team", Mirrors: []configv1.ImageMirror{"m.example:5000/copies"}}}
			create(t, s, &configv1.ImageTagMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: configv1.ImageTagMirrorSetSpec{ImageTagMirrors: mirrors}})
		}, exists(contract.DirRegistries + `\quay.example\hosts.toml`), nil},
		{"A23 the pull secret changes", func(t *testing.T) {
			amend(t, s, contract.ConfigNamespace, contract.PullSecret, func(o *corev1.Secret) {
				o.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"m.example:5000":{"auth":"bWU6aHVudGVyMg=="}}}`)
			})
		}, s.holdsSecret(func(c contract.Confidential) bool { return bytes.Contains(c.PullSecret, []byte("bWU6aHVudGVyMg==")) }), nil},
		{"A24 a proxy with a password and its authority is set", func(t *testing.T) {
			create(t, s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, Name: "user-ca"}, Data: map[string]string{contract.CABundleField: string(authority)}})
			amend(t, s, "", "cluster", func(o *configv1.Proxy) {
				o.Spec.HTTPProxy, o.Spec.HTTPSProxy, o.Spec.NoProxy, o.Spec.TrustedCA.Name = "http://proxy:3128", "http://me:hunter2@proxy:3128", "intern", "user-ca"
			})
		}, all(variable("HTTP_PROXY", "http://proxy:3128"), variable("HTTPS_PROXY", "http://me:hunter2@proxy:3128"), variable("NO_PROXY", "intern"), trusts(authority, 1)), disruptive()},
		{"A24 the proxy changes", func(t *testing.T) {
			amend(t, s, "", "cluster", func(o *configv1.Proxy) { o.Spec.HTTPProxy = "http://other:3128" })
		}, variable("HTTP_PROXY", "http://other:3128"), disruptive()},
		{"A25 an authority is added", func(t *testing.T) {
			create(t, s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "more"},
				Data: map[string]string{"a": string(own) + "junk\n", "b": string(own)}})
			s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Trust.AdditionalCA = "more" })
		}, all(trusts(own, 1), trusts(authority, 1)), nil},
		{"A25 an authority is taken away", func(t *testing.T) {
			s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Trust.AdditionalCA = "" })
		}, all(trusts(own, 0), trusts(authority, 1)), nil},
		{"A24 the proxy goes", func(t *testing.T) {
			amend(t, s, "", "cluster", func(o *configv1.Proxy) { o.Spec = configv1.ProxySpec{} })
		}, all(variable("HTTP_PROXY", ""), variable("HTTPS_PROXY", ""), variable("NO_PROXY", ""), trusts(authority, 0)), disruptive()},
		{"A26 the exporter gets a key", func(t *testing.T) { serving = rotate(t, s) }, func(ctx context.Context, h *fleet.Host) (bool, string, error) {
			return all(contains(contract.PathExporterCertificate, serving), command(contract.ServiceExporter, "--web.config.file="))(ctx, h)
		}, []string{contract.ServiceExporter}},
		{"A26 the exporter's key is rotated", func(t *testing.T) { serving = rotate(t, s) }, func(ctx context.Context, h *fleet.Host) (bool, string, error) {
			return contains(contract.PathExporterCertificate, serving)(ctx, h)
		}, nil},
		{"A21 kubelet's client CA is rotated", func(t *testing.T) {
			amend(t, s, "", "machine-config-controller", func(o *mcfgv1.ControllerConfig) {
				o.Spec.KubeAPIServerServingCAData = append(o.Spec.KubeAPIServerServingCAData, rotated...)
			})
		}, contains(contract.PathKubeletCA, rotated), nil},
		{"A16 logs have other limits", func(t *testing.T) {
			s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) {
				spec.Logging.MaxAge = &metav1.Duration{Duration: time.Hour}
			})
		}, all(command(contract.ServiceKubelet, "-log-file-age=1h0m0s"), command(contract.ServiceCSIProxy, "-log-file-age=1h0m0s"), command(contract.ServiceHybridOverlay, "--logfile-maxage=1")),
			[]string{contract.ServiceKubelet, contract.ServiceHybridOverlay, contract.ServiceKubeProxy, contract.ServiceCSIProxy}},
		{"kubelet's configuration is set", func(t *testing.T) {
			s.settings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) {
				spec.Kubelet.Config = &runtime.RawExtension{Raw: []byte(`{"maxPods":42}`)}
			})
		}, contains(contract.PathKubeletConfig, []byte(`"maxPods": 42`)),
			[]string{contract.ServiceKubelet, contract.ServiceHybridOverlay, contract.ServiceKubeProxy}},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			before := map[*fleet.Host]map[string]uint32{}
			for _, h := range hosts {
				before[h] = processes(t, h)
			}
			step.do(t)
			for _, h := range hosts {
				s.await(t, h.Name+" to follow", func(ctx context.Context) (bool, string, error) { return step.look(ctx, h) })
			}
			s.ready(t, hosts...)
			for _, h := range hosts {
				s.stillServes(t, h, boots[h])
				for name, pid := range processes(t, h) {
					if restarted := pid != before[h][name]; restarted != slices.Contains(step.restarts, name) && before[h][name] != 0 {
						t.Errorf("%s: was %s restarted? %v", h.Name, name, restarted)
					}
				}
			}
		}) {
			return
		}
	}
	t.Run("A35 and nobody was told a secret of it", func(t *testing.T) {
		said := s.said(t)
		for _, h := range hosts {
			said["the process list of "+h.Name] = strings.Join(h.Machine.CommandLines(), "\n")
			said["the daemon's log of "+h.Name] = string(hostFile(t, h, contract.DirLog+`\wicd\wicd.log`))
			said["the daemon's ledger of "+h.Name] = string(hostFile(t, h, contract.PathState))
		}
		for place, text := range said {
			for _, secret := range []string{"hunter2", "bWU6aHVudGVyMg"} {
				if strings.Contains(text, secret) {
					t.Errorf("%s stands in %s", secret, place)
				}
			}
		}
	})
}

// stillServes says what else happened to a host: it must run all its services, and have had one SSH connection and one boot.
func (s *stage) stillServes(t *testing.T, h *fleet.Host, boot string) {
	t.Helper()
	if c := h.Server.Counters(); c.Connections != 1 {
		t.Errorf("%s: %d SSH connections, want the one of its join", h.Name, c.Connections)
	}
	facts, err := h.Machine.Host().System.Facts(t.Context())
	if err != nil || facts.BootID != boot {
		t.Errorf("%s: it was rebooted, %v", h.Name, err)
	}
	for name, pid := range processes(t, h) {
		if pid == 0 {
			t.Errorf("%s: service %s does not run", h.Name, name)
		}
	}
}

// disruptive are all managed services: each reads its environment when it starts.
func disruptive() []string {
	return []string{
		contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceHybridOverlay, contract.ServiceKubeProxy, contract.ServiceCSIProxy, contract.ServiceExporter,
	}
}

// processes are those of the managed services but the daemon's, 0 for one that does not run.
func processes(t *testing.T, h *fleet.Host) map[string]uint32 {
	t.Helper()
	all := map[string]uint32{}
	services := h.Machine.Host().Services
	names, err := services.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		service, err := services.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(service.Description, contract.ManagedDescription) && name != contract.ServiceDaemon {
			all[name] = 0
			if service.State == winos.ServiceRunning {
				all[name] = service.PID
			}
		}
	}
	return all
}

// holdsSecret holds when the version that a host has is one whose Secret is as wanted.
func (s *stage) holdsSecret(wanted func(c contract.Confidential) bool) look {
	return func(ctx context.Context, h *fleet.Host) (bool, string, error) {
		instance, err := s.Instance(ctx, h)
		if err != nil {
			return false, "", err
		}
		key := client.ObjectKey{Namespace: contract.OperatorNamespace, Name: contract.ServicesSecretPrefix + instance.Status.Version}
		manifest, secret := &corev1.ConfigMap{}, &corev1.Secret{}
		if err = errors.Join(s.Client.Get(ctx, key, manifest), s.Client.Get(ctx, key, secret)); err != nil {
			return false, "", err
		}
		m, err := contract.ManifestFromConfigMap(manifest.Data)
		if err != nil {
			return false, "", err
		}
		data, err := contract.UnpackConfidential(secret.Data[contract.ConfidentialField])
		if err != nil {
			return false, "", err
		}
		c, err := contract.ParseConfidential(data, m)
		return err == nil && wanted(c), instance.Status.Version, err
	}
}

// exists holds when there is a file.
func exists(path string) look {
	return func(_ context.Context, h *fleet.Host) (bool, string, error) {
		_, err := h.Machine.Host().Files.Stat(path)
		return err == nil, fmt.Sprint(err), nil
	}
}

// settings changes the WindowsMachineConfig.
func (s *stage) settings(t *testing.T, edit func(spec *v1alpha1.WindowsMachineConfigSpec)) {
	t.Helper()
	amend(t, s, "", contract.MachineConfigObject, func(o *v1alpha1.WindowsMachineConfig) { edit(&o.Spec) })
}

// amend changes one object of the cluster.
func amend[T any, P interface {
	*T
	client.Object
}](t *testing.T, s *stage, namespace, name string, edit func(P)) {
	t.Helper()
	object, c := P(new(T)), everything(t, s)
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		t.Fatalf("copying %T", object)
	}
	edit(object)
	if err := c.Patch(t.Context(), object, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// create makes an object that stays for the steps to come.
func create(t *testing.T, s *stage, object client.Object) {
	t.Helper()
	if err := everything(t, s).Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// everything is a client that knows OpenShift's types, too.
func everything(t *testing.T, s *stage) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), cluster.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.Cluster.Admin(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rotate(t *testing.T, s *stage) []byte {
	t.Helper()
	certificate, err := openshift.RotateExporterKey(t.Context(), s.Cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func newAuthority(t *testing.T, name string) []byte {
	t.Helper()
	text, err := clustertest.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// all holds when each look does.
func all(looks ...look) look {
	return func(ctx context.Context, h *fleet.Host) (bool, string, error) {
		for _, l := range looks {
			if ok, how, err := l(ctx, h); !ok || err != nil {
				return ok, how, err
			}
		}
		return true, "", nil
	}
}

// variable holds when the system's environment has a variable with a text in its value; an empty text means that it is not set.
func variable(name, value string) look {
	return func(ctx context.Context, h *fleet.Host) (bool, string, error) {
		system, err := h.Machine.Host().Environment.All(ctx)
		got := system[name]
		return strings.Contains(got, value) && (value == "") == (got == ""), fmt.Sprintf("%s is %q", name, got), err
	}
}

// trusts holds when a certificate is in the root store so many times.
func trusts(authority []byte, times int) look {
	return func(ctx context.Context, h *fleet.Host) (bool, string, error) {
		block, _ := pem.Decode(authority)
		list, err := h.Machine.Host().Trust.List(ctx)
		found := 0
		for _, der := range list {
			if bytes.Equal(der, block.Bytes) {
				found++
			}
		}
		return found == times, fmt.Sprintf("it is there %d times", found), err
	}
}

// contains holds when a text is part of a file.
func contains(path string, text []byte) look {
	return func(_ context.Context, h *fleet.Host) (bool, string, error) {
		content, err := winos.ReadFile(h.Machine.Host().Files, path)
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // it may come
		}
		return bytes.Contains(content, bytes.TrimSpace(text)), fmt.Sprintf("%s has %d bytes", path, len(content)), nil
	}
}

// command holds when a service runs with a word in its command.
func command(service, word string) look {
	return func(ctx context.Context, h *fleet.Host) (bool, string, error) {
		found, err := h.Machine.Host().Services.Get(ctx, service)
		return err == nil && strings.Contains(found.Command, word) && found.State == winos.ServiceRunning, found.Command, err
	}
}
