package verbs_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

// world is a real control plane with our RBAC manifests, a payload of small test programs, and one simulated machine.
type world struct {
	*cluster.Cluster
	*rig
	admin   kubernetes.Interface
	payload *payload.Dir
	desired blueprint.Desired
	// published are the names of the objects that daemons may read.
	published []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := plane.Start(t, cluster.Options{Audit: true})
	w := &world{Cluster: c}
	var err error
	if w.admin, err = kubernetes.NewForConfig(c.Admin()); err != nil {
		t.Fatal(err)
	}
	w.install(t)
	w.render(t)
	w.rig = newRig(t, sim.Options{Address: netip.MustParseAddr("127.0.0.1"),
		Programs: program.Standins(program.Options{LeaseInterval: time.Hour, StatusInterval: time.Hour})})
	return w
}

// install creates the namespaces, identities, rights and policies that the daemon needs.
func (w *world) install(t *testing.T) {
	t.Helper()
	for _, name := range []string{contract.OperatorNamespace, contract.MachineConfigNamespace} {
		if _, err := w.admin.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"apply", "-f", "../../../config/rbac/daemon.yaml"},
		{"apply", "-k", "../../../config/admission"},
		{"create", "serviceaccount", contract.BootstrapServiceAccount, "-n", contract.MachineConfigNamespace},
		{"create", "clusterrolebinding", "bootstrap", "--clusterrole=system:node-bootstrapper",
			"--serviceaccount=" + contract.MachineConfigNamespace + ":" + contract.BootstrapServiceAccount},
	} {
		out, err := exec.CommandContext(t.Context(), w.Binaries.Kubectl,
			append([]string{"--kubeconfig", w.Kubeconfig}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %s", args, out)
		}
	}
}

func (w *world) render(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	made, err := assembly.WriteStandins(dir, "v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	if w.payload, err = payload.OpenDir(dir); err != nil {
		t.Fatal(err)
	}
	w.desired, err = blueprint.Render(blueprint.Input{
		Facts: blueprint.Facts{
			Platform: contract.PlatformNone, APIServer: w.URL, KubernetesVersion: "v1.36.3",
			Network: blueprint.Network{NetworkType: blueprint.NetworkOVNKubernetes,
				ServiceNetwork: netip.MustParsePrefix("172.30.0.0/16"), HybridOverlay: true},
			KubeletCA: string(w.CAPEM), BootstrapCA: string(w.CAPEM),
		},
		Payload: made, Logging: blueprint.DefaultLogging(), OperatorVersion: "0.1.0", Salt: []byte("0123456789abcdef"),
		Now: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// publish creates the objects of a revision, and lets daemons read only the published revisions.
func (w *world) publish(t *testing.T, version string, m contract.Manifest, c contract.Confidential) {
	t.Helper()
	data, err := m.Data()
	if err != nil {
		t.Fatal(err)
	}
	packed, digest, err := c.Encode()
	if err != nil || digest != m.Confidential {
		t.Fatalf("the digest of the confidential part is %s, the manifest has %s, %v", digest, m.Confidential, err)
	}
	name := contract.ServicesConfigMapPrefix + version
	meta := metav1.ObjectMeta{Name: name}
	_, err = w.admin.CoreV1().Secrets(contract.OperatorNamespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{contract.ConfidentialField: packed}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.admin.CoreV1().ConfigMaps(contract.OperatorNamespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: meta, Data: data}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.published = append(w.published, name)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: contract.ServicesReaderRole},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, ResourceNames: w.published,
				Verbs: []string{"list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"},
				ResourceNames: []string{contract.PayloadSourceConfigMap}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"},
				ResourceNames: []string{contract.LatestSecret}, Verbs: []string{"list", "watch"}},
		},
	}
	roles := w.admin.RbacV1().Roles(contract.OperatorNamespace)
	if _, err = roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		_, err = roles.Create(t.Context(), role, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// want publishes a desired state, and sets it as the Node's desired revision.
func (w *world) want(t *testing.T, m contract.Manifest, c contract.Confidential) (version string) {
	t.Helper()
	_, digest, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.Confidential, m.ConfidentialEnvironment = digest, c.EnvironmentDigest()
	if err = m.Validate(); err != nil {
		t.Fatal(err)
	}
	version = versionOf(m)
	w.publish(t, version, m, c)
	w.annotate(t, fmt.Sprintf("%q:%q", contract.DesiredRevisionAnnotation, version))
	return version
}

// approve approves all certificate requests until the test ends. Other tests check which requests may be approved.
func (w *world) approve(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		requests := w.admin.CertificatesV1().CertificateSigningRequests()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			list, err := requests.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, csr := range list.Items {
				if len(csr.Status.Conditions) > 0 {
					continue
				}
				csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
					{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
				// After an error, the next tick tries again.
				_, _ = requests.UpdateApproval(ctx, csr.Name, &csr, metav1.UpdateOptions{})
			}
		}
	}()
}

// sign gets a certificate from the cluster for the daemon's first request.
func (w *world) sign(t *testing.T, request []byte) []byte {
	t.Helper()
	seconds := int32(14 * 24 * 3600)
	requests := w.admin.CertificatesV1().CertificateSigningRequests()
	_, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "first"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: &seconds,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var certificate []byte
	eventually(t, "signing", func() bool {
		csr, err := requests.Get(t.Context(), "first", metav1.GetOptions{})
		if err == nil {
			certificate = csr.Status.Certificate
		}
		return len(certificate) > 0
	})
	return certificate
}

func (w *world) node(t *testing.T) *corev1.Node {
	t.Helper()
	node, err := w.admin.CoreV1().Nodes().Get(t.Context(), "win-a", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return node
}

func (w *world) annotate(t *testing.T, annotations string) {
	t.Helper()
	_, err := w.admin.CoreV1().Nodes().Patch(t.Context(), "win-a", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{`+annotations+`}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// join makes the machine a node of the real API server.
func (w *world) join(t *testing.T) {
	t.Helper()
	r := w.rig
	var blobs []contract.Blob
	for _, f := range w.desired.Manifest.Files {
		if f.Digest != "" {
			blobs = append(blobs, contract.Blob{Digest: f.Digest, Size: f.Size})
		}
	}
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight,
		contract.PreflightRequest{Time: time.Now(), Blobs: blobs, Daemon: r.digest, APIServer: w.URL, CA: w.CAPEM}))
	if len(found.Problems) > 0 {
		t.Fatal(found.Problems)
	}
	var stream bytes.Buffer
	sources, err := w.payload.Select(found.Missing)
	if err != nil {
		t.Fatal(err)
	}
	if err = payload.Pack(&stream, sources); err != nil {
		t.Fatal(err)
	}
	if err = winos.WriteFile(r.Host().Files, r.Home()+`\`+contract.RPCDir+`\stream`, &stream,
		winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive,
		contract.ReceiveRequest{Stream: "stream", Blobs: found.Missing}))
	_, kubeconfig, err := w.ServiceAccountConfig(t.Context(), contract.MachineConfigNamespace,
		contract.BootstrapServiceAccount, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	confidential, _, err := w.desired.Confidential.Encode()
	if err != nil {
		t.Fatal(err)
	}
	made := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, contract.BootstrapRequest{
		NodeName: "win-a", Revision: w.desired.Revision, Manifest: w.desired.Manifest, Confidential: confidential,
		BootstrapKubeconfig: kubeconfig, Register: true,
	}))
	eventually(t, "registering", func() bool { return w.node(t) != nil })
	w.publish(t, w.desired.Revision, w.desired.Manifest, w.desired.Confidential)
	w.annotate(t, fmt.Sprintf("%q:%q,%q:%q", contract.DesiredRevisionAnnotation, w.desired.Revision,
		contract.HybridSubnetAnnotation, "10.132.1.0/24"))
	must(t, call[contract.HandoverAnswer](t, r, contract.VerbHandover, contract.HandoverRequest{
		NodeName: "win-a", Certificate: w.sign(t, made.DaemonCSR), APIServer: w.URL,
		CA: w.CAPEM, Namespace: contract.OperatorNamespace,
	}))
	if service(t, r, contract.ServiceDaemon).State != winos.ServiceRunning {
		t.Fatal("the daemon does not run")
	}
}

// joinedWorld returns a world whose machine is a node and has applied the desired revision.
func joinedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.approve(t)
	w.join(t)
	w.holds(t, w.desired.Revision)
	return w
}

func (w *world) holds(t *testing.T, version string) {
	t.Helper()
	var last map[string]string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the Node's annotations were %v", last)
			if x, err := winos.ReadFile(w.Host().Files, contract.PathDaemonLog); err == nil {
				t.Logf("LOG %s", x)
			}
		}
	})
	eventually(t, "version "+version, func() bool {
		node := w.node(t)
		if node != nil {
			last = node.Annotations
		}
		return node != nil && node.Annotations[contract.RevisionAnnotation] == version &&
			node.Annotations[contract.ApplyStatusAnnotation] == ""
	})
}

// requests returns a user's requests to the API server.
func (w *world) requests(t *testing.T, user string) (lines []string) {
	t.Helper()
	for r, err := range cluster.Requests(w.AuditLog) {
		if err != nil {
			t.Fatal(err)
		}
		if r.User == user {
			lines = append(lines, fmt.Sprintf("%s %s/%s %d", r.Verb, r.Resource, r.Name, r.Code))
		}
	}
	return lines
}

// logged waits until the audit log contains all requests that the API server has answered so far. The API server writes
// a request to the log shortly after the effect of the request is visible.
func (w *world) logged(t *testing.T, mark string) {
	t.Helper()
	_, _ = w.admin.CoreV1().ConfigMaps(contract.OperatorNamespace).Get(t.Context(), "mark-"+mark, metav1.GetOptions{})
	eventually(t, "the audit log of "+mark, func() bool {
		for r, err := range cluster.Requests(w.AuditLog) {
			if err == nil && r.Name == "mark-"+mark {
				return true
			}
		}
		return false
	})
}

// settled waits until a user makes no requests for a second, and returns all requests of the user.
func (w *world) settled(t *testing.T, user string) (lines []string) {
	t.Helper()
	marks := 0
	eventually(t, "the end of requests of "+user, func() bool {
		if marks++; marks > 1 {
			pause(t, time.Second)
		}
		w.logged(t, fmt.Sprint("settled-", marks))
		before := len(lines)
		lines = w.requests(t, user)
		return marks > 1 && len(lines) == before
	})
	return lines
}

func TestTheDaemonWithARealAPIServer(t *testing.T) {
	t.Parallel()
	w := joinedWorld(t)
	for _, s := range w.desired.Manifest.Services { // A06
		if got := service(t, w.rig, s.Name); got.State != winos.ServiceRunning ||
			!strings.HasPrefix(got.Description, contract.ManagedDescription) {
			t.Errorf("%s is %s, described as %q", s.Name, got.State, got.Description)
		}
	}
	eventually(t, "deleting kubelet's bootstrap credential", func() bool {
		there, err := winos.Exists(w.Host().Files, contract.PathBootstrapKubeconfig)
		return err == nil && !there
	})
	eventually(t, "the Node being Ready", func() bool {
		node := w.node(t)
		return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	})

	t.Run("an idle daemon makes no requests", func(t *testing.T) {
		const user = contract.DaemonUserPrefix + "win-a"
		before := w.settled(t, user)
		starts := w.Starts()
		pause(t, 5*time.Second)
		if now := w.requests(t, user); len(now) != len(before) {
			t.Errorf("the idle daemon requested %v", now[len(before):])
		}
		if now := w.Starts(); now != starts {
			t.Errorf("processes were started: %+v, before %+v", now, starts)
		}
		t.Logf("requests of the daemon: %v", before)
	})

	t.Run("A15: the Node reports the revision again", func(t *testing.T) {
		w.annotate(t, fmt.Sprintf("%q:null", contract.RevisionAnnotation))
		w.holds(t, w.desired.Revision)
	})

	var next string
	t.Run("A14: a service that leaves the manifest leaves the node", func(t *testing.T) {
		less := w.desired.Manifest
		less.Services = nil
		for _, s := range w.desired.Manifest.Services {
			if s.Name != contract.ServiceCSIProxy {
				less.Services = append(less.Services, s)
			}
		}
		less.Files = nil
		for _, f := range w.desired.Manifest.Files {
			if f.Path != contract.PathCSIProxy {
				f.Services = slices.DeleteFunc(slices.Clone(f.Services),
					func(name string) bool { return name == contract.ServiceCSIProxy })
				less.Files = append(less.Files, f)
			}
		}
		next = w.want(t, less, w.desired.Confidential)
		w.holds(t, next)
		if _, err := w.Host().Services.Get(t.Context(), contract.ServiceCSIProxy); err == nil {
			t.Error("csi-proxy still exists")
		}
	})

	t.Run("the certificate is renewed and used without a restart", func(t *testing.T) {
		files := w.Host().Files
		l, err := apiclient.Open(apiclient.Options{
			Files: files, Kubeconfig: contract.PathDaemonKubeconfig, UserAgent: "test"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		before := l.Certificate().Leaf
		reloaded := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		renewer := &apiclient.Renewer{
			Identity: apiclient.Daemon(files, "win-a"), Client: l.Client, Lifetime: 14 * 24 * time.Hour, Spread: func() float64 { return 0 },
			Clock: clocktesting.NewFakeClock(before.NotBefore.Add(before.NotAfter.Sub(before.NotBefore) * 3 / 4)),
			Renewed: func() error {
				defer cancel() // one renewal is enough
				err := l.Reload()
				reloaded <- err
				return err
			},
		}
		go renewer.Run(ctx)
		eventually(t, "renewing", func() bool {
			if clock, ok := renewer.Clock.(*clocktesting.FakeClock); ok && clock.HasWaiters() {
				clock.Step(time.Second)
			}
			select {
			case err = <-reloaded:
				return true
			default:
				return false
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if l.Certificate().Leaf.Equal(before) {
			t.Error("the link leads to the old certificate")
		}
		if life := time.Until(l.Certificate().Leaf.NotAfter); life < 13*24*time.Hour || life > 15*24*time.Hour {
			t.Errorf("the certificate is valid for %s", life)
		}
		stop(t, w.rig, contract.ServiceDaemon)
		if err = w.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
			t.Fatal(err)
		}
		w.annotate(t, fmt.Sprintf("%q:null", contract.RevisionAnnotation))
		w.holds(t, next)
	})

	t.Run("a host that was off until its certificate had to be renewed renews it", func(t *testing.T) {
		before := read(t, w.rig, contract.PathDaemonCertificate)
		stop(t, w.rig, contract.ServiceDaemon)
		w.SetClockOffset(11 * day)
		if err := w.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
			t.Fatal(err)
		}
		eventually(t, "renewing", func() bool { return read(t, w.rig, contract.PathDaemonCertificate) != before })
		w.SetClockOffset(0)
		restart(t, w.rig, contract.ServiceDaemon)
		w.annotate(t, fmt.Sprintf("%q:null", contract.RevisionAnnotation))
		w.holds(t, next)
	})

	t.Run("a change of day 2 needs a few requests and no restart", func(t *testing.T) {
		const user = contract.DaemonUserPrefix + "win-a"
		pids := map[string]uint32{}
		for _, s := range w.desired.Manifest.Services {
			if got, err := w.Host().Services.Get(t.Context(), s.Name); err == nil {
				pids[s.Name] = got.PID
			}
		}
		w.logged(t, "day-2")
		before := len(w.requests(t, user))
		c := w.desired.Confidential
		c.Mirrors = []contract.MirrorRule{{Source: "quay.io/team", Kind: contract.PullByTag,
			Mirrors: []string{"mirror.example/team"}}}
		c.PullSecret = []byte(`{"auths":{"mirror.example":{"auth":"dTpodW50ZXIy"}}}`)
		c.Trust = []string{string(w.ca.pem)}
		latest := w.want(t, w.desired.Manifest, c)
		w.holds(t, latest)
		made := w.requests(t, user)[before:]
		if len(made) > 6 {
			t.Errorf("%d requests: %v", len(made), made)
		}
		t.Logf("requests: %v", made)
		for name, pid := range pids {
			if got := service(t, w.rig, name); got.PID != pid {
				t.Errorf("%s was restarted", name)
			}
		}
		hosts := read(t, w.rig, contract.PathHosts)
		if !strings.Contains(hosts, "http://127.0.0.1:9184") || strings.Contains(hosts, "hunter2") ||
			strings.Contains(hosts, "dTpodW50ZXIy") {
			t.Errorf("hosts.toml is %s", hosts)
		}
		conn, err := w.Host().Network.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:9184"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		for _, text := range []string{journal(t, w.rig), strings.Join(w.CommandLines(), "\n"), fmt.Sprint(w.node(t))} {
			if strings.Contains(text, "hunter2") || strings.Contains(text, "dTpodW50ZXIy") {
				t.Error("a secret is visible")
			}
		}
		w.annotate(t, fmt.Sprintf("%q:%q", contract.DesiredRevisionAnnotation, next))
		w.holds(t, next)
		if there, err := winos.Exists(w.Host().Files, contract.PathHosts); err != nil || there {
			t.Errorf("withdrawn rules still exist: %v, %v", there, err)
		}
	})

	t.Run("A32: the host is cleaned", func(t *testing.T) {
		cleanUp(t, w.rig)
		for _, line := range sim.Diff(w.fresh, w.Snapshot(), kept(w.rig)...) {
			t.Error(line)
		}
	})
}

// pause waits in real time, so that a test can check that nothing happens.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
