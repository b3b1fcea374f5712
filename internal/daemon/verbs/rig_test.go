package verbs_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/sim"
)

// rig is a simulated machine with the real daemon and small test programs. It also contains the operator's side: a CA
// and the daemon's uploaded program.
type rig struct {
	*sim.Machine
	ca *signingCA
	// uploaded is the path of the daemon's program as the operator sent it. digest is its SHA-256.
	exe, uploaded, digest string
	// fresh is the machine's state before the test.
	fresh sim.Snapshot
	// life, if set, may kill verbs.
	life atomic.Pointer[mortal]
	// files, if set, wraps the files that the daemon's service sees.
	files func(winos.Files) winos.Files
	// kubelets counts the starts of kubelet.
	kubelets atomic.Int64
	// unapproved leaves kubelet's certificate requests pending.
	unapproved atomic.Bool
}

const firstDaemon = "MZ wicd"

// newRig creates a machine that exists until the end of the test.
func newRig(t *testing.T, options sim.Options) *rig {
	t.Helper()
	if options.Hostname == "" {
		options.Hostname = "WIN-A"
	}
	r := &rig{ca: newCA(t), exe: firstDaemon}
	programs := map[string]sim.Program{
		"kubelet.exe":                        r.kubelet,
		"hybrid-overlay-node.exe":            overlay,
		"windows-instance-config-daemon.exe": r.daemon,
	}
	for name, program := range options.Programs {
		programs[name] = program
	}
	options.Programs = programs
	m, err := sim.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	r.Machine, r.fresh = m, m.Snapshot()
	r.upload(t)
	return r
}

// upload puts the daemon's program into the RPC directory, as the operator does.
func (r *rig) upload(t *testing.T) {
	t.Helper()
	dir := r.Home() + `\` + contract.RPCDir
	r.digest = digestOf(r.exe)
	r.uploaded = dir + `\` + contract.UploadedName(r.digest)
	files := r.Host().Files
	if err := files.MkdirAll(dir, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	if err := winos.WriteFile(files, r.uploaded, strings.NewReader(r.exe), winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
}

// call runs a verb as a process of the machine, with its files in the RPC directory, and returns its answer.
func call[Result any](t *testing.T, r *rig, verb contract.Verb, request any) contract.Answer[Result] {
	t.Helper()
	const id = "call-1"
	dir := r.Home() + `\` + contract.RPCDir + `\`
	content, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	files := r.Host().Files
	if err = winos.WriteFile(files, dir+contract.RequestName(id), bytes.NewReader(content),
		winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	line := contract.RPCDir + `\` + contract.UploadedName(r.digest) + " " + string(verb) + " --rpc " + id
	if code := r.Exec(t.Context(), sim.ExecRequest{CommandLine: line, Stderr: &stderr}); code != 0 {
		t.Fatalf("%s ended with %d: %s", verb, code, stderr.String())
	}
	if there, _ := winos.Exists(files, dir+contract.RequestName(id)); there {
		t.Errorf("%s did not delete its request", verb)
	}
	return readAnswer[Result](t, files, dir+contract.AnswerName(id))
}

func readAnswer[Result any](t *testing.T, files winos.Files, path string) (answer contract.Answer[Result]) {
	t.Helper()
	info, err := files.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Access != winos.AccessAdministrators {
		t.Error("users other than administrators may read the answer")
	}
	content, err := winos.ReadFile(files, path)
	if err != nil {
		t.Fatal(err)
	}
	if err = json.Unmarshal(content, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// must returns the result of an answer. If the answer contains a problem, must fails the test.
func must[Result any](t *testing.T, answer contract.Answer[Result]) Result {
	t.Helper()
	if answer.Problem != nil {
		t.Fatal(answer.Problem)
	}
	return answer.Result
}

// daemon runs the real program in the machine.
func (r *rig) daemon(ctx context.Context, p *sim.Process) int {
	host := p.Host
	// In a cleanup, only the process that does the work is killed.
	if life := r.life.Load(); life != nil && p.Args[1] != "controller" && p.Args[1] != string(contract.VerbCleanup) {
		life.kill = func() {
			if life.hold != nil {
				life.hold(ctx)
				return
			}
			_ = p.Machine.Kill(p.PID)
		}
		host = life.host(p.Host)
	}
	if r.files != nil && p.Args[1] == "controller" {
		host.Files = r.files(host.Files)
	}
	cmd := verbs.New(verbs.Options{
		Host: host, Version: "test", HomeDir: p.Machine.Home(), Self: p.Args[0], Stdin: p.Stdin, Stdout: p.Stdout,
		Stderr: p.Stderr, RunService: p.RunService,
		Intervals: reconcile.Intervals{
			QuickCheck: 20 * time.Millisecond, Waiting: 5 * time.Millisecond, Failing: 20 * time.Millisecond,
			FailingLimit: 100 * time.Millisecond},
	})
	cmd.SetArgs(append([]string{}, p.Args[1:]...))
	if err := cmd.ExecuteContext(ctx); err != nil {
		_, _ = p.Stderr.Write([]byte(err.Error() + "\n"))
		return 1
	}
	return 0
}

// pathRequestedKey is the key that kubelet uses to request its first certificate.
const pathRequestedKey = contract.DirKubeletPKI + `\kubelet-client.key.tmp`

// kubelet simulates kubelet. With its bootstrap credential, it gets a kubeconfig and a certificate. While its request
// is pending, it waits. After a restart it uses the same key.
func (r *rig) kubelet(ctx context.Context, p *sim.Process) int {
	r.kubelets.Add(1)
	files := p.Host.Files
	now := p.Host.System.Now()
	own, err := winos.Exists(files, contract.PathKubeconfig)
	expired, err2 := reconcile.KubeletExpired(files, now)
	first, err3 := winos.Exists(files, contract.PathBootstrapKubeconfig)
	if errors.Join(err, err2, err3) != nil || !own && !first {
		return 1
	}
	if r.unapproved.Load() && !own {
		asked, err := winos.Exists(files, pathRequestedKey)
		if err == nil && !asked {
			err = winos.WriteFile(files, pathRequestedKey, strings.NewReader(fmt.Sprintf("key %d", r.kubelets.Load())),
				winos.AccessAdministrators)
		}
		if err != nil {
			return 1
		}
		p.Running()
		<-ctx.Done()
		return 0
	}
	stored, err := winos.Exists(files, contract.DirKubeletPKI+`\kubelet-client-current.pem`)
	if err != nil {
		return 1
	}
	if !own && stored && !expired { // a certificate in the store is used before the bootstrap credential
		if err = winos.WriteFile(files, contract.PathKubeconfig, strings.NewReader(kubeconfigOf(firstServer, firstCA)),
			winos.AccessAdministrators); err != nil {
			return 1
		}
	} else if !own || expired && first {
		certificate := selfSigned(contract.KubeletUserPrefix+"win-a", now)
		for path, content := range map[string][]byte{contract.DirKubeletPKI +
			`\kubelet-client-current.pem`: certificate, contract.PathKubeconfig: []byte(kubeconfigOf(firstServer, firstCA))} {
			if winos.WriteFile(files, path, bytes.NewReader(content), winos.AccessAdministrators) != nil {
				return 1
			}
		}
	}
	p.Running()
	<-ctx.Done()
	return 0
}

// firstServer and firstCA are the address and CA of the API server in kubelet's kubeconfig, as written at its first
// join.
const firstServer, firstCA = "https://127.0.0.1:1", "the CA of the first join"

// kubeconfigOf returns a kubeconfig as kubelet writes it.
func kubeconfigOf(server, ca string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"users":[{"name":"u","user":{"client-certificate":%q}}],
"clusters":[{"name":"k","cluster":{"server":%q,"certificate-authority-data":%q}}]}`,
		contract.DirKubeletPKI+`\kubelet-client-current.pem`, server, base64.StdEncoding.EncodeToString([]byte(ca)))
}

// overlay creates the pod network.
func overlay(ctx context.Context, p *sim.Process) int {
	_, err := p.Machine.CreateHNSNetwork(winos.HNSNetwork{
		Name: contract.HybridOverlayNetwork, Subnet: netip.MustParsePrefix("10.132.1.0/24"),
		ManagementIP: p.Machine.Address(),
	})
	if err != nil {
		return 1
	}
	p.Running()
	<-ctx.Done()
	return 0
}

// blobs returns the payload: the content of each program by its name.
func blobs() map[string]string {
	return map[string]string{
		contract.PathKubelet: "MZ kubelet", contract.PathKubeLogRunner: "MZ runner",
		contract.PathContainerd: "MZ containerd",
		contract.PathKubeProxy:  "MZ proxy", contract.PathHybridOverlay: "MZ overlay",
	}
}

func wanted() (all []contract.Blob) {
	for _, content := range blobs() {
		all = append(all, blobOf(content))
	}
	return all
}

func blobOf(content string) contract.Blob {
	return contract.Blob{Digest: digestOf(content), Size: int64(len(content))}
}

func digestOf(content string) string { return contract.Digest([]byte(content)) }

// manifest returns a small manifest with one object of each kind.
func manifest() contract.Manifest {
	m := contract.Manifest{
		Services: []contract.Service{
			{Name: "containerd", Command: contract.PathContainerd + ` --run-service`, Bootstrap: true},
			{Name: "kubelet", Command: contract.PathKubeLogRunner + ` -log-file=C:\var\log\kubelet\kubelet.log ` +
				contract.PathKubelet + ` --node-ip=NODE_IP`,
				Bootstrap: true, Priority: 1, Dependencies: []string{"containerd"},
				HostVariables: []contract.HostVariable{{Name: "NODE_IP", Fact: contract.FactNodeIP}}},
			{Name: "hybrid-overlay-node", Command: contract.PathHybridOverlay + ` --node NODE_NAME`, Priority: 2,
				Dependencies:  []string{"kubelet"},
				NodeVariables: []contract.NodeVariable{{Name: "NODE_NAME", JSONPath: "{.metadata.name}"}}},
			{Name: "kube-proxy", Command: contract.PathKubeProxy + ` --config=` + contract.PathKubeProxyConfig,
				Priority: 3, Dependencies: []string{"hybrid-overlay-node"}},
		},
		Files: []contract.File{
			{Path: contract.PathKubeletConfig, Content: `{"kind":"KubeletConfiguration"}`,
				Services: []string{"kubelet"}},
			{Path: contract.DirTLS + `\certs\ca.crt`, Content: "ca"},
			{Path: contract.PathBootstrapCA, Content: "boot ca"}, {Path: contract.PathKubeletCA, Content: "kubelet ca"},
			{Path: contract.DirTemp + `\readme.txt`, Content: "ours"},
			{Path: contract.PathKubeProxyConfig, Content: "sourceVip: SOURCE_VIP", Services: []string{"kube-proxy"},
				HostVariables: []contract.HostVariable{{Name: "SOURCE_VIP", Fact: contract.FactSourceVIP}}},
		},
		EnvironmentVars:        map[string]string{"HTTP_PROXY": "http://proxy:3128"},
		WatchedEnvironmentVars: []string{"HTTP_PROXY", "NO_PROXY"},
	}
	users := map[string][]string{
		contract.PathKubelet: {"kubelet"}, contract.PathKubeLogRunner: {"kubelet"},
		contract.PathContainerd: {"containerd"},
		contract.PathKubeProxy:  {"kube-proxy"}, contract.PathHybridOverlay: {"hybrid-overlay-node"},
	}
	for _, path := range slices.Sorted(maps.Keys(blobs())) {
		content := blobs()[path]
		m.Files = append(m.Files, contract.File{Path: path, Digest: digestOf(content), Size: int64(len(content)),
			Services: users[path]})
	}
	return m
}

// versionOf returns the name of a manifest's revision, as the operator computes it.
func versionOf(m contract.Manifest) string { return "1-" + m.Digest()[:contract.RevisionDigits] }

func preflightRequest(r *rig) contract.PreflightRequest {
	return contract.PreflightRequest{Time: r.Host().System.Now(), Blobs: wanted(), Daemon: r.digest}
}

// send packs blobs into a stream in the RPC directory.
func send(t *testing.T, files winos.Files, home string, missing []contract.Blob) contract.ReceiveRequest {
	t.Helper()
	const name = "stream-1"
	var stream bytes.Buffer
	content := map[string]string{}
	for _, c := range blobs() {
		content[digestOf(c)] = c
	}
	pack(t, &stream, missing, content)
	if err := winos.WriteFile(files, home+`\`+contract.RPCDir+`\`+name, &stream, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	return contract.ReceiveRequest{Stream: name, Blobs: missing}
}

func bootstrapRequest() contract.BootstrapRequest {
	return contract.BootstrapRequest{
		NodeName: "win-a", Revision: versionOf(manifest()), Manifest: manifest(), BootstrapKubeconfig: []byte("secret"),
	}
}

func (r *rig) handoverRequest(t *testing.T, csr []byte) contract.HandoverRequest {
	t.Helper()
	return contract.HandoverRequest{
		NodeName: "win-a", Certificate: r.ca.sign(t, csr, r.Host().System.Now()),
		APIServer: "https://127.0.0.1:1", CA: r.ca.pem, Namespace: "wmco",
	}
}

// signingCA signs requests, as kube-controller-manager does.
type signingCA struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pem         []byte
}

func newCA(t *testing.T) *signingCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test ca"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signingCA{key, certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *signingCA) sign(t *testing.T, request []byte, now time.Time) []byte {
	t.Helper()
	block, _ := pem.Decode(request)
	if block == nil {
		t.Fatalf("no certificate request in %q", request)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: csr.Subject, NotBefore: now.Add(-time.Minute),
		NotAfter:    now.Add(14 * 24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.certificate, csr.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func selfSigned(name string, now time.Time) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: now.Add(14 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	private, err2 := x509.MarshalECPrivateKey(key)
	if errors.Join(err, err2) != nil {
		return nil
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...)
}

func pack(t *testing.T, w io.Writer, missing []contract.Blob, content map[string]string) {
	t.Helper()
	var all []payload.Blob
	for _, b := range missing {
		all = append(all, payload.Blob{Blob: b, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(content[b.Digest])), nil
		}})
	}
	if err := payload.Pack(w, all); err != nil {
		t.Fatal(err)
	}
}
