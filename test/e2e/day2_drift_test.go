package e2e_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
)

func TestA13_DriftIsRepairedWithoutTheOperator(t *testing.T) {
	c := dayTwo(t)
	authority := authority(t, "one that somebody removes")
	c.put(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-authorities"},
		Data:       map[string]string{"bundle": string(authority)},
	})
	c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) {
		allAtOnce(spec)
		spec.Trust.AdditionalCA = "windows-authorities"
	})
	lend(t, c, &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}},
		func(o *configv1.Proxy) func(*configv1.Proxy) {
			o.Spec.HTTPProxy, o.Spec.HTTPSProxy = "http://proxy.invalid:3128", "http://proxy.invalid:3128"
			return func(o *configv1.Proxy) { o.Spec = configv1.ProxySpec{} }
		})
	c.everywhere(t, "a proxy and an authority", func(h *fleet.Host) error {
		return errors.Join(trustsOnce(t, h, string(authority)),
			proxied(t, h, map[string]string{"HTTPS_PROXY": "http://proxy.invalid:3128"}, ".svc"))
	})
	c.settled(t)
	if err := c.Operator.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Operator.Start(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	drifts := []struct {
		name  string
		drift func(t *testing.T, h *fleet.Host)
	}{
		{"the command line of a service, with its dependants running", commandLineChanged},
		{"a service that is stopped, and its dependants with it", func(t *testing.T, h *fleet.Host) {
			t.Helper()
			must(t, h.Machine.Host().Services.Stop(t.Context(), contract.ServiceKubelet))
		}},
		{"a service that is deleted", func(t *testing.T, h *fleet.Host) {
			t.Helper()
			services := h.Machine.Host().Services
			for _, name := range []string{contract.ServiceCSIProxy, contract.ServiceKubeProxy} {
				must(t, services.Stop(t.Context(), name))
				must(t, services.Delete(t.Context(), name))
			}
		}},
		{"a file that is changed, and one that is deleted", func(t *testing.T, h *fleet.Host) {
			t.Helper()
			files := h.Machine.Host().Files
			must(t, winos.WriteFile(files, contract.PathKubeletConfig, strings.NewReader("oops"),
				winos.AccessAdministrators))
			must(t, files.Remove(contract.PathCNIConfig))
		}},
		{"a program that is changed, and one that is deleted, while they are not running",
			func(t *testing.T, h *fleet.Host) {
				t.Helper()
				host := h.Machine.Host()
				must(t, host.Services.Stop(t.Context(), contract.ServiceExporter))
				must(t, winos.WriteFile(host.Files, contract.PathWindowsExporter, strings.NewReader("MZ but another"),
					winos.AccessAdministrators))
				must(t, host.Files.Remove(contract.PathContainerdShim))
			}},
		{"a variable that is changed, and one that is removed", func(t *testing.T, h *fleet.Host) {
			t.Helper()
			environment := h.Machine.Host().Environment
			must(t, environment.Set(t.Context(), "no_proxy", "*"))
			must(t, environment.Unset(t.Context(), "HTTPS_PROXY"))
		}},
		{"a certificate that is removed", func(t *testing.T, h *fleet.Host) {
			t.Helper()
			must(t, h.Machine.Host().Trust.Remove(t.Context(), der(t, authority)))
		}},
	}
	want := map[string]string{}
	for i := range drifts {
		want[c.hosts[i].Name] = picture(t, c.hosts[i])
	}
	for i, d := range drifts {
		d.drift(t, c.hosts[i])
		if picture(t, c.hosts[i]) == want[c.hosts[i].Name] {
			t.Fatalf("%s changed nothing", d.name)
		}
	}
	for i, d := range drifts {
		t.Run(d.name, func(t *testing.T) {
			h := c.hosts[i]
			c.on(t, []*fleet.Host{h}, "repair", func(h *fleet.Host) error {
				if now := picture(t, h); now != want[h.Name] {
					return fmt.Errorf("%s\nwant %s", now, want[h.Name])
				}
				return nil
			})
		})
	}
}

// commandLineChanged changes what others depend on.
func commandLineChanged(t *testing.T, h *fleet.Host) {
	t.Helper()
	services := h.Machine.Host().Services
	service, err := services.Get(t.Context(), contract.ServiceContainerd)
	must(t, err)
	service.Command += " --log-level=trace"
	must(t, services.Apply(t.Context(), service.ServiceConfig))
}

// picture is what a host's managed services, their processes and files are like, without what
// differs from start to start.
func picture(t *testing.T, h *fleet.Host) string {
	t.Helper()
	running := map[uint32]string{}
	for _, p := range h.Machine.Processes() {
		running[p.PID] = p.CommandLine
	}
	var all []string
	for name, s := range managed(t, h) {
		all = append(all, fmt.Sprintf("%s %s %s %v, running %s", name, s.State, s.Command, s.Dependencies,
			running[s.PID]))
	}
	for _, path := range []string{contract.PathKubeletConfig, contract.PathCNIConfig, contract.PathWindowsExporter,
		contract.PathContainerdShim} {
		content, err := winos.ReadFile(h.Machine.Host().Files, path)
		all = append(all, fmt.Sprintf("%s %x %v", path, sha256.Sum256(content), err))
	}
	environment, err := h.Machine.Host().Environment.All(t.Context())
	must(t, err)
	all = append(all, fmt.Sprint(environment), fmt.Sprintf("%d authorities", len(roots(t, h))))
	return sorted(all)
}
