package reconcile_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

const (
	nodeName  = "win-a"
	namespace = "wmco"
)

var (
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// rig is a simulated machine after its bootstrap, with an API server that is a fake client of client-go.
type rig struct {
	*sim.Machine
	api *fake.FakeDynamicClient
	// crashing makes kube-proxy end right after its start. broken makes it end before it reports that it runs. With the
	// settings "two", picky makes kube-proxy refuse to start, and touchy makes it end after a second.
	crashing, broken, picky, touchy atomic.Bool
	// silent makes the service manager not respond.
	silent atomic.Bool
	// passes counts the passes of the daemon.
	passes atomic.Int64
	// unkillable makes processes impossible to end, as if a driver held them.
	unkillable atomic.Bool
	// slow makes programs hang that the daemon starts directly, not as services.
	slow atomic.Bool
	// keptUp makes Windows refuse to reboot.
	keptUp atomic.Bool
	// policy is a group policy that installs root certificates. reported is the daemon's last report.
	policy   policy
	reported atomic.Pointer[contract.Reconciled]
	// trusted records the CAs of the API server that the daemon is told to trust.
	trusted trusted
	// serves is the CA that signed the API server's certificate. If it isn't set, every CA verifies the API server.
	serves served
	// hns is the Host Network Service, which may hang.
	hns hns
	// starts counts the starts of kube-proxy, and environment is its environment at the last start.
	starts      atomic.Int64
	environment atomic.Pointer[map[string]string]
	// pulls simulates the resolver for containerd. ends, if set, returns when the daemon's certificate expires.
	pulls pulls
	ends  atomic.Pointer[time.Time]
	// letGo is set when the daemon's loop has ended because the operator has released the host.
	letGo  atomic.Bool
	locked *sim.File
	// mortal, if set, may kill the daemon.
	mortal *mortal
	// scanner, if set, simulates a virus scanner.
	scanner *scanner
	stop    context.CancelFunc
	done    chan struct{}
	// pace has the intervals of the daemon.
	pace reconcile.Intervals
	// payloadServer, if set, provides payload. replaced counts how often the daemon was replaced by another program.
	// running is the digest of the running program.
	payloadServer *payloadServer
	replaced      atomic.Int64
	running       atomic.Pointer[string]
}

// pulls replaces the resolver, whose sockets don't work in a test with its own clock.
type pulls struct {
	mu      sync.Mutex
	problem *contract.Problem
	// instead are the files that Follow returns together with a problem.
	instead []contract.File
	changed []contract.Confidential
}

// Follow implements apply.Registry. It returns a file for each source.
func (p *pulls) Follow(_ context.Context, c contract.Confidential, _ map[string]string) ([]contract.File,
	*contract.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem != nil {
		return p.instead, p.problem
	}
	p.changed = append(p.changed, c)
	files := []contract.File{}
	for _, rule := range c.Mirrors {
		files = append(files, contract.File{Path: hostsFile(rule.Source), Content: strings.Join(rule.Mirrors, ",")})
	}
	return files, nil
}

func hostsFile(source string) string { return contract.DirRegistries + `\` + source + `\hosts.toml` }

func (p *pulls) fail(problem *contract.Problem, instead ...contract.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problem, p.instead = problem, instead
}

// killer ends processes, unless they are unkillable.
type killer struct {
	winos.Programs
	unkillable, slow *atomic.Bool
}

// Run implements winos.Programs.
func (k killer) Run(ctx context.Context, exe string, args ...string) (int, error) {
	if k.slow.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return k.Programs.Run(ctx, exe, args...)
}

// Kill implements winos.Programs.
func (k killer) Kill(ctx context.Context, pid uint32, runs func(exe string) bool) error {
	if k.unkillable.Load() {
		return winos.ErrDenied
	}
	return k.Programs.Kill(ctx, pid, runs)
}

// served is the CA that verifies the API server.
type served struct{ ca atomic.Value }

// Store sets the CA that verifies the API server.
func (s *served) Store(ca string) { s.ca.Store(ca) }

func (s *served) reach(_ context.Context, by apiclient.Server) error {
	if ca, known := s.ca.Load().(string); known && !strings.Contains(string(by.CA), ca) {
		return x509.UnknownAuthorityError{}
	}
	return nil
}

// trusted simulates the daemon's connection to the API server.
type trusted struct {
	mu  sync.Mutex
	cas []string
	// fails is the number of calls that still have to fail.
	fails int
}

func (t *trusted) trust(_ context.Context, ca []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fails > 0 {
		t.fails--
		return winos.ErrNoSpace
	}
	t.cas = append(t.cas, string(ca))
	return nil
}

func (t *trusted) fail(times int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fails = times
}

func (t *trusted) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.cas)
}

// policy is a group policy with its own root certificates. tries counts requests to remove one of them.
type policy struct {
	brings atomic.Bool
	tries  atomic.Int64
}

// governed is a root store that keeps the certificates of the policy.
type governed struct {
	winos.Trust
	policy *policy
}

// Remove implements winos.Trust.
func (g governed) Remove(ctx context.Context, der []byte) error {
	if !g.policy.brings.Load() {
		return g.Trust.Remove(ctx, der)
	}
	g.policy.tries.Add(1)
	return fmt.Errorf("changing the root certificates: the change was not kept: %w", winos.ErrDenied)
}

// hns is a Host Network Service that may hang.
type hns struct {
	winos.Network
	mu sync.Mutex
	// hangs, if set, is closed when the service responds again. calls counts the calls that wait for this.
	hangs chan struct{}
	calls int
}

// HNSNetwork implements winos.Network. Like the real HNS, it ignores the context.
func (h *hns) HNSNetwork(ctx context.Context, name string) (winos.HNSNetwork, error) {
	h.mu.Lock()
	hangs, network := h.hangs, h.Network
	if hangs != nil {
		h.calls++
	}
	h.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	return network.HNSNetwork(ctx, name)
}

func (h *hns) hang() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs, h.calls = make(chan struct{}), 0
}

// goOn makes the service respond again, and returns how many calls were waiting for it.
func (h *hns) goOn() (calls int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.hangs)
	h.hangs = nil
	return h.calls
}

// inBubble runs a test in a synctest bubble, which has its own clock.
func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	bubble(t, test)
}

func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{stop: func() {}}
		var err error
		r.Machine, err = sim.New(sim.Options{Hostname: "WIN-A", Address: firstCard(),
			Programs: map[string]sim.Program{"kube-proxy.exe": r.proxy, "hybrid-overlay-node.exe": maker,
				"windows-instance-config-daemon.exe": r.daemon}})
		if err != nil {
			t.Fatal(err)
		}
		r.api = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{nodes: "NodeList", configMaps: "ConfigMapList",
				secrets: "SecretList"})
		for _, content := range payloadBlobs() {
			r.write(t, contract.DirStore+`\`+digestOf(content), content)
		}
		_, err = verbs.Bootstrap(t.Context(), r.Host(), contract.PathDaemon,
			contract.BootstrapRequest{NodeName: nodeName, Revision: one(), Manifest: manifest(),
				BootstrapKubeconfig: []byte("secret")})
		if err != nil {
			t.Fatal(err)
		}
		test(t, r)
		r.stopDaemon()
		if err = r.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) proxy(ctx context.Context, p *sim.Process) int {
	r.starts.Add(1)
	r.environment.Store(&p.Env)
	settings, err := winos.ReadFile(p.Host.Files, contract.PathKubeProxyConfig)
	two := err == nil && strings.HasPrefix(string(settings), "two")
	if r.broken.Load() || two && r.picky.Load() {
		return 1
	}
	p.Running()
	if r.crashing.Load() {
		return 1
	}
	if two && r.touchy.Load() {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			return 1
		}
	}
	<-ctx.Done()
	return 0
}

// start starts the daemon's loop. client is nil if there is no API server.
func (r *rig) start(t *testing.T, client dynamic.Interface) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	host := r.Host()
	if m := r.mortal; m != nil {
		m.kill, m.open = cancel, map[*mortalWriter]bool{}
		host = m.host(host)
	}
	if r.scanner != nil {
		r.scanner.Files = host.Files
		host.Files, host.Programs = r.scanner, scannedPrograms{host.Programs, r.scanner}
		host.Services = scannedServices{host.Services, r.scanner}
	}
	stateFile, err := state.Read(host.Files)
	if err != nil {
		t.Fatal(err)
	}
	host.Services = silentManager{host.Services, &r.silent}
	host.Programs = killer{host.Programs, &r.unkillable, &r.slow}
	host.Trust = governed{host.Trust, &r.policy}
	host.System = keptUp{host.System, &r.keptUp}
	r.hns.mu.Lock() // a call of the previous daemon may still hang
	r.hns.Network = host.Network
	r.hns.mu.Unlock()
	host.Network = &r.hns
	host = winos.WithTimeouts(host)
	var end func() time.Time
	if r.ends.Load() != nil {
		end = func() time.Time { return *r.ends.Load() }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.serve(ctx, reconcile.Options{
			Host: host, State: stateFile, Client: client, NodeName: nodeName, Namespace: namespace,
			Kubeconfig: contract.PathDaemonKubeconfig, Registry: &r.pulls, Intervals: r.pace, CertificateEnd: end,
			Reach: r.serves.reach, Trust: func(ctx context.Context, ca []byte, _ bool) (bool, error) {
				return r.serves.reach(ctx, apiclient.Server{CA: ca}) == nil, r.trusted.trust(ctx, ca)
			}, Report: func(reconciled contract.Reconciled) {
				r.reported.Store(&reconciled)
				r.passes.Add(1)
			}})
	}()
	r.stop, r.done = cancel, done
}

// serve runs the daemon, and starts it again after it was replaced, as the service manager does.
func (r *rig) serve(ctx context.Context, options reconcile.Options) {
	if r.payloadServer != nil {
		options.Source = r.payloadServer.source
	}
	for {
		digest := ""
		if content, err := winos.ReadFile(r.Host().Files, contract.PathDaemon); err == nil {
			digest = digestOf(string(content))
		}
		r.running.Store(&digest)
		options.Program = selfupdate.New(options.Host, options.State, digest)
		err := options.Program.Run(ctx, func(ctx context.Context) error { return reconcile.New(options).Run(ctx) })
		r.letGo.Store(errors.Is(err, reconcile.ErrReleased))
		if !errors.Is(err, selfupdate.ErrReplaced) {
			return
		}
		r.replaced.Add(1)
		time.Sleep(time.Second)
		stateFile, err := state.Read(options.Host.Files)
		if err != nil {
			return
		}
		options.State = stateFile
	}
}

// daemon simulates the daemon's program.
func (r *rig) daemon(ctx context.Context, p *sim.Process) int {
	if len(p.Args) > 1 && p.Args[1] == "controller" {
		return r.controller(ctx, p)
	}
	return version(ctx, p)
}

// version simulates a program that only prints its version. A broken program ends with an error, and a hanging one
// doesn't end.
func version(ctx context.Context, p *sim.Process) int {
	content, err := winos.ReadFile(p.Host.Files, p.Args[0])
	switch {
	case err != nil || len(p.Args) != 2 || p.Args[1] != "version" || strings.Contains(string(content), "broken"):
		return 1
	case strings.Contains(string(content), "hangs"):
		<-ctx.Done()
	}
	return 0
}

// stopDaemon stops the daemon.
func (r *rig) stopDaemon() {
	r.stop()
	if r.done != nil {
		<-r.done
		r.done = nil
	}
}

// overlay creates the overlay network, as hybrid-overlay-node does.
func (r *rig) overlay(t *testing.T) {
	t.Helper()
	_, err := r.CreateHNSNetwork(winos.HNSNetwork{Name: contract.HybridOverlayNetwork,
		Subnet: netip.MustParsePrefix("10.132.1.0/24"), ManagementIP: r.Address()})
	if err != nil {
		t.Fatal(err)
	}
}

// node creates the Node with an annotation for the desired revision.
func (r *rig) node(t *testing.T, desired string) {
	t.Helper()
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": nodeName,
			"annotations": map[string]any{contract.DesiredRevisionAnnotation: desired}},
	}}
	if err := r.api.Tracker().Create(nodes, node, ""); err != nil {
		t.Fatal(err)
	}
}

// annotations returns the annotations of the Node.
func (r *rig) annotations(t *testing.T) map[string]string {
	t.Helper()
	object, err := r.api.Tracker().Get(nodes, "", nodeName)
	if err != nil {
		t.Fatal(err)
	}
	return object.(*unstructured.Unstructured).GetAnnotations()
}

// annotate sets an annotation of the Node. If value is empty, annotate deletes the annotation.
func (r *rig) annotate(t *testing.T, name, value string) {
	t.Helper()
	r.annotateAll(t, map[string]string{name: value})
}

// annotateAll sets several annotations in one update of the Node, so that the daemon sees all of them at once.
func (r *rig) annotateAll(t *testing.T, annotations map[string]string) {
	t.Helper()
	object, err := r.api.Tracker().Get(nodes, "", nodeName)
	if err != nil {
		t.Fatal(err)
	}
	node := object.(*unstructured.Unstructured).DeepCopy()
	all := node.GetAnnotations()
	for name, value := range annotations {
		delete(all, name)
		if value != "" {
			all[name] = value
		}
	}
	node.SetAnnotations(all)
	if err = r.api.Tracker().Update(nodes, node, ""); err != nil {
		t.Fatal(err)
	}
}

// versionOf returns the name of a manifest's revision, as the operator computes it.
func versionOf(m contract.Manifest) string { return "0.1.0-" + m.Digest()[:contract.RevisionDigits] }

// one returns the name of the revision that the machine was bootstrapped with.
func one() string { return versionOf(manifest()) }

// publish creates the ConfigMap of a manifest.
func (r *rig) publish(t *testing.T, m contract.Manifest) (version string) {
	t.Helper()
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	data, err := m.Data()
	if err != nil {
		t.Fatal(err)
	}
	version = versionOf(m)
	r.publishData(t, version, data)
	return version
}

// want publishes a desired state with its confidential part, and names it in the Node's annotation as the desired
// revision.
func (r *rig) want(t *testing.T, m contract.Manifest, c contract.Confidential) (version string) {
	t.Helper()
	version = r.publishBoth(t, m, c)
	r.annotate(t, contract.DesiredRevisionAnnotation, version)
	return version
}

func (r *rig) publishBoth(t *testing.T, m contract.Manifest, c contract.Confidential) (version string) {
	t.Helper()
	c.Salt = []byte("0123456789abcdef")
	packed, digest, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.Confidential, m.ConfidentialEnvironment = digest, c.EnvironmentDigest()
	if err = c.Validate(); err != nil {
		t.Fatal(err)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": contract.ServicesSecretPrefix + versionOf(m), "namespace": namespace},
		"data":     map[string]any{contract.ConfidentialField: base64.StdEncoding.EncodeToString(packed)},
	}}
	if err = r.api.Tracker().Create(secrets, secret, namespace); err != nil {
		t.Fatal(err)
	}
	return r.publish(t, m)
}

// expectStatus checks the revision that the Node reports, and the reason why the desired revision is not verified (""
// for none).
func (r *rig) expectStatus(t *testing.T, version string, status contract.Reason) {
	t.Helper()
	a := r.annotations(t)
	exists, _, _ := strings.Cut(a[contract.ApplyStatusAnnotation], ":")
	if a[contract.RevisionAnnotation] != version || exists != string(status) {
		t.Errorf("want revision %s and reason %q; the Node reports %s and %q", version, status,
			a[contract.RevisionAnnotation], a[contract.ApplyStatusAnnotation])
	}
}

func (r *rig) publishData(t *testing.T, version string, data map[string]string) {
	t.Helper()
	values := map[string]any{}
	for key, value := range data {
		values[key] = value
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": contract.ServicesConfigMapPrefix + version, "namespace": namespace},
		"data":     values,
	}}
	_ = r.api.Tracker().Delete(configMaps, namespace, object.GetName())
	if err := r.api.Tracker().Create(configMaps, object, namespace); err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass, and waits until everything has settled.
func pass(d time.Duration) {
	time.Sleep(d) // the test's own clock jumps ahead
	synctest.Wait()
}

func (r *rig) state(t *testing.T, name string) winos.ServiceState {
	t.Helper()
	s, err := r.Host().Services.Get(t.Context(), name)
	if err != nil {
		return "absent"
	}
	return s.State
}

func (r *rig) read(t *testing.T, path string) string {
	t.Helper()
	content, err := winos.ReadFile(r.Host().Files, path)
	if err != nil {
		return "absent"
	}
	return string(content)
}

func (r *rig) write(t *testing.T, path, content string) {
	t.Helper()
	files := r.Host().Files
	if err := files.MkdirAll(path[:strings.LastIndex(path, `\`)], winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	if err := winos.WriteFile(files, path, strings.NewReader(content), winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
}

func payloadBlobs() map[string]string {
	return map[string]string{contract.PathContainerd: "MZ containerd", contract.PathKubelet: "MZ kubelet",
		contract.PathHybridOverlay: "MZ overlay", contract.PathKubeProxy: "MZ proxy"}
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func manifest() contract.Manifest {
	name := []contract.NodeVariable{{Name: "NODE_NAME", JSONPath: "{.metadata.name}"}}
	m := contract.Manifest{
		Services: []contract.Service{
			{Name: "containerd", Command: contract.PathContainerd, Bootstrap: true},
			{Name: "kubelet", Command: contract.PathKubelet, Bootstrap: true, Priority: 1,
				Dependencies: []string{"containerd"}},
			{Name: "hybrid-overlay-node", Command: contract.PathHybridOverlay + " --node NODE_NAME",
				NodeVariables: name, Priority: 2, Dependencies: []string{"kubelet"}},
			{Name: "kube-proxy", Command: contract.PathKubeProxy, Priority: 3,
				Dependencies: []string{"hybrid-overlay-node"}},
		},
		Files: []contract.File{
			{Path: contract.PathKubeletConfig, Content: "{}", Services: []string{"kubelet"}},
			{Path: contract.PathKubeProxyConfig, Content: "vip: SOURCE_VIP", Services: []string{"kube-proxy"},
				HostVariables: []contract.HostVariable{{Name: "SOURCE_VIP", Fact: contract.FactSourceVIP}}},
		},
		EnvironmentVars:        map[string]string{"HTTP_PROXY": "http://proxy"},
		WatchedEnvironmentVars: []string{"HTTP_PROXY"},
	}
	users := map[string][]string{contract.PathContainerd: {"containerd"}, contract.PathKubelet: {"kubelet"},
		contract.PathHybridOverlay: {"hybrid-overlay-node"}, contract.PathKubeProxy: {"kube-proxy"}}
	for _, path := range slices.Sorted(maps.Keys(payloadBlobs())) {
		content := payloadBlobs()[path]
		m.Files = append(m.Files, contract.File{Path: path, Digest: digestOf(content), Size: int64(len(content)),
			Services: users[path]})
	}
	return m
}

// aws simulates Amazon's metadata service.
func aws(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "token") })
	mux.HandleFunc("GET /latest/meta-data/local-hostname",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	return mux
}
