package e2e_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/scene"
)

const kubeProxyExe = "kube-proxy.exe"

// The payload has a kubelet that is newer than the API server at both times, and the one of its minor at the second.
// The nodes live on: the control plane goes up to that minor, a CA is rotated, one is rebooted, and one leaves.
func TestA61_APlainClusterGetsTheKubeletThatFitsItOfSeveralMinors(t *testing.T) {
	o := rolling(2, 1)
	o.Kubernetes, o.Settings.Network.Type = true, v1alpha1.NetworkFlannel
	server := newClaim(t, "v1.36.3")
	o.Front = server.front
	base, several, more := filepath.Join(t.TempDir(), "base"), filepath.Join(t.TempDir(), "several"),
		filepath.Join(t.TempDir(), "more")
	must(t, scene.WritePayload(base))
	must(t, scene.ChangePayload(several, base, scene.Change{Versions: map[string]string{kubeletExe: "v1.34.8"},
		Beside: map[string][]string{kubeletExe: {"v1.37.2"}, kubeProxyExe: {"v1.37.2"}}}))
	must(t, scene.ChangePayload(more, several, scene.Change{Versions: map[string]string{kubeletExe: "v1.36.3"},
		Beside: map[string][]string{kubeletExe: {"v1.37.2", "v1.34.8"}}}))
	o.Payload = several
	v := depart(t, o)
	running := map[string]uint32{}
	for _, h := range v.hosts {
		running[h.Name] = process(t, h, contract.ServiceContainerd)
		if now := v.node(t, h).Status.NodeInfo.KubeletVersion; now != "v1.34.8" {
			t.Fatalf("%s begins with kubelet %s", h.Name, now)
		}
	}
	must(t, v.Upgrade(t.Context(), "", more))
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
	for _, h := range v.hosts {
		if now := v.node(t, h).Status.NodeInfo.KubeletVersion; now != "v1.36.3" {
			t.Errorf("%s has kubelet %s", h.Name, now)
		}
		if process(t, h, contract.ServiceContainerd) != running[h.Name] {
			t.Errorf("%s: containerd, which is the same, was restarted", h.Name)
		}
	}
	for _, step := range []struct {
		what string
		do   func(t *testing.T)
	}{
		{"the control plane goes up a minor", func(t *testing.T) { v.goesUpAMinor(t, o, server, more, running) }},
		{"A21 a CA of kubelet's clients is rotated", func(t *testing.T) { v.rotatesAClientCA(t, o) }},
		{"A30 a host is rebooted", func(t *testing.T) {
			before := bootID(t, v.hosts[0])
			v.ask(t, v.hosts[0], contract.RebootRequestedAnnotation)
			v.rebooted(t, v.hosts[0], before)
			v.well(t)
			v.inService(t, v.hosts...)
			v.onFlannel(t, v.hosts[0])
		}},
		{"A32 a host leaves", func(t *testing.T) {
			v.drop(t, v.hosts[0])
			v.gone(t, v.hosts[0])
			if left := scene.Left(v.hosts[0]); len(left) > 0 {
				t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
			v.ready(t, v.hosts[1])
			v.nothingRefused(t, contract.OperatorNamespace)
		}},
	} {
		if !t.Run(step.what, step.do) {
			return
		}
	}
}

// goesUpAMinor has the API server say the next minor version: nodes follow in an ordinary rollout, and get what
// differs and nothing else.
func (v *trip) goesUpAMinor(t *testing.T, o scene.Options, server *claim, dir string, running map[string]uint32) {
	t.Helper()
	v.from = v.instance(t, v.hosts[0]).Status.Revision
	const minor = "v1.37.2"
	server.says("v1.37.0")
	v.look(t, o, 7*time.Minute)
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
	opened, err := payload.OpenDir(dir)
	must(t, err)
	var fresh int64
	for _, f := range opened.Manifest().Files {
		if f.Version == minor {
			fresh += f.Size
		}
	}
	for _, n := range v.Nodes() {
		if n.StagedBytes != fresh || fresh == 0 {
			t.Errorf("%s was sent %d bytes, and %d are new", n.Node, n.StagedBytes, fresh)
		}
	}
	v.runs(t, minor, minor)
	for _, h := range v.hosts {
		v.onFlannel(t, h)
		if process(t, h, contract.ServiceContainerd) != running[h.Name] {
			t.Errorf("%s: containerd, which is the same, was restarted", h.Name)
		}
	}
}

// rotatesAClientCA adds a CA where the API server keeps those of kubelet's clients. It reaches nodes without a
// restart.
func (v *trip) rotatesAClientCA(t *testing.T, o scene.Options) {
	t.Helper()
	before, added := pids(t, v.hosts...), bytes.TrimSpace(authority(t, "the next client CA"))
	config := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: "kube-system", Name: "extension-apiserver-authentication"}
	must(t, v.Client.Get(t.Context(), key, config))
	old := bytes.TrimSpace([]byte(config.Data["client-ca-file"]))
	config.Data["client-ca-file"] += string(added) + "\n"
	must(t, v.Client.Update(t.Context(), config))
	v.from = v.instance(t, v.hosts[0]).Status.Revision
	v.look(t, o, 8*time.Minute)
	v.arrived(t)
	for _, h := range v.hosts {
		content, err := winos.ReadFile(h.Machine.Host().Files, contract.PathKubeletCA)
		must(t, err)
		if !bytes.Contains(content, added) || !bytes.Contains(content, old) {
			t.Errorf("%s has not the next CA beside the old one", h.Name)
		}
	}
	v.inService(t, v.hosts...)
	undisturbed(t, before, v.hosts...)
}

// look has the operator read the facts of the cluster now, by another drain timeout, which is no part of a revision.
// Otherwise it does every ten minutes.
func (s *stage) look(t *testing.T, o scene.Options, timeout time.Duration) {
	t.Helper()
	spec := *o.Settings
	spec.Rollout.DrainTimeout = &metav1.Duration{Duration: timeout}
	must(t, s.Configure(t.Context(), spec))
}

// claim is what an API server says of its version to the operator. All else it does as the one behind it.
type claim struct {
	t       *testing.T
	version atomic.Pointer[string]
}

func newClaim(t *testing.T, version string) *claim {
	t.Helper()
	c := &claim{t: t}
	c.says(version)
	return c
}

func (c *claim) says(version string) { c.version.Store(&version) }

// front is for scene.Options.
func (c *claim) front(config *rest.Config) *rest.Config {
	target, err := url.Parse(config.Host)
	must(c.t, err)
	anonymous := rest.AnonymousClientConfig(config)
	transport, err := rest.TransportFor(anonymous)
	must(c.t, err)
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(apiversion.Info{GitVersion: *c.version.Load()})
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	c.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	through := rest.CopyConfig(config)
	through.Host = server.URL
	through.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return through
}
