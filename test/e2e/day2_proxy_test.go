package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// proxyPassword may appear only where the administrator wrote it, and in places on nodes that only administrators can
// read.
const proxyPassword = "axolotl-7"

func TestA24_TheProxyIsInEveryServiceAndLeavesIt(t *testing.T) {
	c := dayTwo(t)
	c.lendSettings(t, allAtOnce)
	c.settled(t)
	before, ca := pids(t, c.hosts...), newCA(t, "of the proxy")
	c.put(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, Name: "proxy-ca"},
		Data: map[string]string{contract.CABundleField: string(ca)}})
	trusted := func(times int) func(h *fleet.Host) error {
		return func(h *fleet.Host) error {
			if n := occurrences(roots(t, h), der(t, ca)); n != times {
				return fmt.Errorf("the proxy's CA is in the root store %d times", n)
			}
			return nil
		}
	}
	proxy := &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	lend(t, c, proxy, func(o *configv1.Proxy) func(*configv1.Proxy) {
		o.Spec.HTTPProxy = "http://someone:" + proxyPassword + "@proxy.invalid:3128"
		o.Spec.HTTPSProxy, o.Spec.NoProxy, o.Spec.TrustedCA.Name = "http://proxy.invalid:3129", "inside.invalid",
			"proxy-ca"
		return func(o *configv1.Proxy) { o.Spec = configv1.ProxySpec{} }
	})
	want := map[string]string{"HTTP_PROXY": "http://someone:" + proxyPassword + "@proxy.invalid:3128",
		"HTTPS_PROXY": "http://proxy.invalid:3129"}
	c.everywhere(t, "the proxy in the system and in every service",
		func(h *fleet.Host) error { return proxied(t, h, want, "inside.invalid") })
	c.everywhere(t, "the proxy's CA in the root store", trusted(1))
	c.settled(t)
	restarted(t, before, c.hosts, readers()...)
	before = pids(t, c.hosts...)
	edit(t, c, proxy, func(o *configv1.Proxy) { o.Spec.HTTPSProxy, o.Spec.NoProxy = "http://other.invalid:3129", "" })
	want["HTTPS_PROXY"] = "http://other.invalid:3129"
	c.everywhere(t, "the change", func(h *fleet.Host) error {
		if strings.Contains(systemVariable(t, h, "NO_PROXY"), "inside.invalid") {
			return errors.New("NO_PROXY still has its old value")
		}
		return proxied(t, h, want, ".cluster.local")
	})
	c.settled(t)
	restarted(t, before, c.hosts, readers()...)
	before = pids(t, c.hosts...)
	c.secrets(t, proxyPassword)
	edit(t, c, proxy, func(o *configv1.Proxy) { o.Spec = configv1.ProxySpec{} })
	c.everywhere(t, "the removal of the proxy", func(h *fleet.Host) error {
		return proxied(t, h, map[string]string{"HTTP_PROXY": "", "HTTPS_PROXY": "", "NO_PROXY": ""}, "")
	})
	c.everywhere(t, "the removal of the proxy's CA", trusted(0))
	c.settled(t)
	restarted(t, before, c.hosts, readers()...)
}

// proxied returns an error unless the host's system environment and the process of every managed service have exactly
// these variables and a word in NO_PROXY.
func proxied(t *testing.T, h *fleet.Host, want map[string]string, exception string) error {
	t.Helper()
	for name, value := range want {
		if have := systemVariable(t, h, name); have != value {
			return fmt.Errorf("the system variable %s is %q", name, have)
		}
	}
	if none := systemVariable(t, h, "NO_PROXY"); !strings.Contains(none, exception) {
		return fmt.Errorf("the system variable NO_PROXY is %q", none)
	}
	running := map[uint32]map[string]string{}
	children := map[uint32]map[string]string{}
	for _, p := range h.Machine.Processes() {
		running[p.PID], children[p.Parent] = p.Environment, p.Environment
	}
	for name, service := range managed(t, h) {
		if name == contract.ServiceDaemon {
			continue // the daemon applies the variables without a restart
		}
		if service.State != winos.ServiceRunning || running[service.PID] == nil {
			return fmt.Errorf("service %s is %s", name, service.State)
		}
		for _, environment := range []map[string]string{running[service.PID], children[service.PID]} {
			for key, value := range want {
				if environment != nil && environment[key] != value {
					return fmt.Errorf("service %s has %s=%q", name, key, environment[key])
				}
			}
			if environment != nil && !strings.Contains(environment["NO_PROXY"], exception) {
				return fmt.Errorf("service %s has NO_PROXY=%q", name, environment["NO_PROXY"])
			}
		}
	}
	return nil
}

// systemVariable returns a variable of the host's system environment.
func systemVariable(t *testing.T, h *fleet.Host, name string) string {
	t.Helper()
	all, err := h.Machine.Host().Environment.All(t.Context())
	must(t, err)
	for key, value := range all {
		if strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}
