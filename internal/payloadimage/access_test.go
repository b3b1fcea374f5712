package payloadimage

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/lab/registry"
)

// That a registry is insecure says nothing of where it leads to: docs/mirrors.md.
func TestA61_WhereAnInsecureRegistryLeadsToIsChecked(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	s.access.CA = nil // so nobody's certificate is trusted
	wanted := s.push(t, s.registry, registry.Payload(t, standins(t, "v1.37.0")))
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/" {
			http.Redirect(w, r, "https://"+s.registry.Host+r.URL.Path, http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(front.Close)
	host := strings.TrimPrefix(front.URL, "https://")
	s.access.Rules = insecureAt(t, host)
	s.until(t, s.store, strings.Replace(wanted, s.registry.Host, host, 1),
		fails(contract.ReasonPayloadImageNotPulled, "none", "certificate"))
	s.access.Rules = insecureAt(t, s.registry.Host)
	s.until(t, s.store, wanted, has("v1.37.0"))
}

// Nor of the proxy before it, which is sent a password.
func TestA61_TheProxyBeforeAnInsecureRegistryIsChecked(t *testing.T) {
	t.Parallel()
	s := newSetting(t)
	var asked atomic.Int64
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(proxy.Close)
	s.access.Rules = insecureAt(t, s.registry.Host)
	s.access.Proxy = func(*url.URL) (*url.URL, error) {
		return url.Parse(strings.Replace(proxy.URL, "https://", "https://user:password@", 1))
	}
	s.until(t, s.store, s.push(t, s.registry, registry.Payload(t, standins(t, "v1.37.0"))),
		fails(contract.ReasonPayloadImageNotPulled, "none", "signed by unknown authority"))
	if asked.Load() > 0 {
		t.Error("a proxy whose certificate nobody signed gets the password")
	}
}

func insecureAt(t *testing.T, host string) mirror.Rules {
	t.Helper()
	rules, err := mirror.NewRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	if rules, err = rules.Restrict(contract.RegistrySources{Insecure: []string{host}}); err != nil {
		t.Fatal(err)
	}
	return rules
}
