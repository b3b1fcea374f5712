package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/scene"
)

const kubeProxyExe = "kube-proxy.exe"

// minorHosts is the number of nodes in the minor upgrade. WMCO_MINOR_NODES sets a larger number.
func minorHosts(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv("WMCO_MINOR_NODES"), "2")
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// A payload has several minor versions of kubelet. The nodes must run the newest version that the API server permits.
// In both steps, the payload also has a kubelet that is newer than the API server. In the second step, it has a kubelet
// of the API server's own minor version.
func TestA61_APlainClusterGetsTheKubeletThatFitsItOfSeveralMinors(t *testing.T) {
	t.Parallel()
	hosts := minorHosts(t)
	o := rolling(hosts, max(1, hosts/5))
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
			t.Fatalf("%s starts with kubelet %s", h.Name, now)
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
			t.Errorf("%s: containerd was restarted although it did not change", h.Name)
		}
	}
	t.Run("the control plane goes up a minor", func(t *testing.T) { v.goesUpAMinor(t, o, server, more, running) })
	v.nothingRefused(t, contract.OperatorNamespace)
}

// goesUpAMinor raises the minor version that the API server reports. The nodes must be updated in an ordinary rollout,
// and must download only the files that changed.
func (v *trip) goesUpAMinor(t *testing.T, o scene.Options, server *claim, dir string, running map[string]uint32) {
	t.Helper()
	v.from = v.instance(t, v.hosts[0]).Status.Revision
	const minor = "v1.37.2"
	server.claims("v1.37.0")
	must(t, v.look(t.Context(), *o.Settings, 7*time.Minute))
	v.arrived(t)
	v.well(t)
	v.inService(t, v.hosts...)
	opened, err := payload.OpenDir(dir)
	must(t, err)
	var fresh, whole int64
	for _, f := range opened.Manifest().Files {
		if whole += f.Size; f.Version == minor {
			fresh += f.Size
		}
	}
	t.Logf("%d nodes: each downloads %d of the payload's %d bytes", len(v.hosts), fresh, whole)
	for _, n := range v.Nodes() {
		if n.StagedBytes != fresh || fresh == 0 {
			t.Errorf("%s downloaded %d bytes, but the new files have %d bytes", n.Node, n.StagedBytes, fresh)
		}
	}
	v.runs(t, slices.Repeat([]string{minor}, len(v.hosts))...)
	for _, h := range v.hosts {
		v.onFlannel(t, h)
		if process(t, h, contract.ServiceContainerd) != running[h.Name] {
			t.Errorf("%s: containerd was restarted although it did not change", h.Name)
		}
	}
}

// look makes the operator read the cluster's facts at once, by a change of the drain timeout. The drain timeout is not
// part of a revision. Without this change, the operator reads the facts every ten minutes.
func (s *stage) look(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec, timeout time.Duration) error {
	spec.Rollout.DrainTimeout = &metav1.Duration{Duration: timeout}
	return s.Configure(ctx, spec)
}

// claim is a proxy that reports another version of the API server to the operator. It passes all other requests to
// the real API server.
type claim struct {
	t       *testing.T
	version atomic.Pointer[string]
}

func newClaim(t *testing.T, version string) *claim {
	t.Helper()
	c := &claim{t: t}
	c.claims(version)
	return c
}

func (c *claim) claims(version string) { c.version.Store(&version) }

// front implements scene.Options.Front.
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

// runs checks the version of each host's kubelet.
func (v *trip) runs(t *testing.T, versions ...string) {
	t.Helper()
	for i, h := range v.hosts {
		if now := v.node(t, h).Status.NodeInfo.KubeletVersion; now != versions[i] {
			t.Errorf("%s has kubelet %s instead of %s", h.Name, now, versions[i])
		}
	}
}
