//go:build linux

package wine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/wine"
	"github.com/windows-nodes/wmco/lab/wine/remote"
	"github.com/windows-nodes/wmco/test/clustertest"
)

const (
	// sharedHosts is the number of hosts that join at once, if several hosts are possible. Each test chooses a host by
	// its role.
	sharedHosts = 3
	// soon is the time limit for operations that take a few seconds on an idle machine. It is long, because CI machines
	// are slow. A test that passes doesn't wait for it.
	soon = 3 * time.Minute
	// version is the first version of the operator, the daemon and the payload.
	version = "0.1.0"
)

// role is the purpose of a host in the shared scene, so that tests don't affect each other. If there is only one host,
// it has all roles.
type role int

const (
	// steady is for tests that inspect the host, or disrupt it and wait for the repair.
	steady role = iota
	// puller is for tests that set mirrors and CAs.
	puller
	// leaver is for tests that remove the host and let it join again.
	leaver
)

// proxyBefore is the value of a variable on the leaver before it became a node. proxyOfCluster is the value that the
// cluster's proxy sets.
const (
	proxyVariable  = "HTTP_PROXY"
	proxyBefore    = "http://before.example:3128"
	proxyOfCluster = "http://proxy.example:3128"
)

// stage is the scene that all tests share, because it takes a minute to start.
type stage struct {
	*scene.Scene
	template *wine.Template
	// dir contains the payload, and programs that only tests need.
	dir string
	// everything is a client that also knows OpenShift's kinds.
	everything client.Client
	// joined is how long the hosts took to be Ready.
	joined time.Duration
}

// shared is a global variable because TestMain can't pass values to tests.
var shared *stage

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard()) // discard logs of the libraries in this process; the operator writes its own log
	os.Exit(runAll(m))
}

func runAll(m *testing.M) (code int) {
	if err := wine.Check(); err != nil {
		fmt.Fprintln(os.Stderr, "The Wine lane is left out:", err)
		if os.Getenv("WMCO_WINE") == "require" {
			return 1
		}
		return 0
	}
	ctx := context.Background()
	s, closeStage, err := set(ctx)
	if err == nil {
		shared = s
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, "setting the stage:", err)
		code = 1
	}
	if code != 0 && s != nil {
		s.tell(ctx)
	}
	if err = closeStage(); err != nil {
		fmt.Fprintln(os.Stderr, "clearing the stage:", err)
		code = 1
	}
	return code
}

// set starts everything and joins all hosts at once. It returns the stage even if a host does not join.
func set(ctx context.Context) (s *stage, closeStage func() error, err error) {
	dir, err := os.MkdirTemp("", "wmco-wine-test-")
	if err != nil {
		return nil, func() error { return nil }, err
	}
	closeStage = func() error { return os.RemoveAll(dir) }
	s = &stage{dir: dir}
	payload := filepath.Join(dir, "payload")
	if s.template, err = wine.Prepare(ctx, wine.Options{Progress: os.Stderr}); err != nil {
		return nil, closeStage, err
	}
	count := sharedHosts
	if !s.template.Isolated() {
		count = 1
		fmt.Fprintln(os.Stderr, "without namespaces, which take root, CAP_SYS_ADMIN and iproute2, there is one "+
			"host, with this machine's name and network, for all tests")
	}
	if _, err = wine.WritePayload(ctx, payload, version, io.Discard); err != nil {
		return nil, closeStage, err
	}
	s.Scene, err = scene.Start(ctx, scene.Options{
		Operator: os.Getenv("WMCO_OPERATOR"), Payload: payload, Progress: os.Stderr, Audit: true, Debug: true,
		Hosts: fleet.Options{Count: count},
		Computer: func(ctx context.Context, hostname string, address netip.Addr,
			reach []netip.AddrPort) (fleet.Computer, error) {
			return s.template.StartAt(ctx, hostname, address, reach)
		},
	})
	if err != nil {
		return nil, closeStage, err
	}
	closeStage = func() error { return errors.Join(s.Close(), os.RemoveAll(dir)) }
	if err = s.prepare(ctx); err != nil {
		return s, closeStage, err
	}
	began := time.Now()
	if err = s.List(ctx, s.Fleet.Hosts...); err != nil {
		return s, closeStage, err
	}
	err = s.WaitReady(ctx, 5*time.Minute, s.Fleet.Hosts...)
	s.joined = time.Since(began)
	return s, closeStage, err
}

// prepare creates the state of the cluster and the hosts before any host joins.
func (s *stage) prepare(ctx context.Context) (err error) {
	scheme := runtime.NewScheme()
	if err = errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		cluster.AddToScheme(scheme)); err != nil {
		return err
	}
	if s.everything, err = client.New(s.Cluster.Admin(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err = s.setProxy(ctx); err != nil {
		return err
	}
	for _, h := range s.Fleet.Hosts {
		h.Name = strings.ToLower(h.Computer.Hostname())
	}
	host, err := machine(s.host(leaver)).Windows()
	if err != nil {
		return err
	}
	if err = host.Environment.Set(ctx, proxyVariable, proxyBefore); err != nil {
		return err
	}
	s.host(leaver).Before, err = s.host(leaver).Snapshot(ctx)
	return err
}

// setProxy sets a proxy with a CA for the cluster. Clusters with a proxy have CAs, at least the CAs of their
// distribution. Without CAs, nodes would wait for them, and keep the CAs that they trust.
func (s *stage) setProxy(ctx context.Context) error {
	text, err := clustertest.Certificate("proxy")
	if err != nil {
		return err
	}
	bundle := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, Name: "proxy-ca"},
		Data:       map[string]string{contract.CABundleField: string(text)},
	}
	if err = s.everything.Create(ctx, bundle); err != nil {
		return err
	}
	proxy := &configv1.Proxy{}
	if err = s.everything.Get(ctx, client.ObjectKey{Name: "cluster"}, proxy); err != nil {
		return err
	}
	before := proxy.DeepCopy()
	proxy.Spec.HTTPProxy, proxy.Spec.TrustedCA.Name = proxyOfCluster, bundle.Name
	return s.everything.Patch(ctx, proxy, client.MergeFrom(before))
}

func (s *stage) host(r role) *fleet.Host { return s.Fleet.Hosts[min(int(r), len(s.Fleet.Hosts)-1)] }

func machine(h *fleet.Host) *wine.Machine {
	m, ok := h.Computer.(*wine.Machine)
	if !ok {
		panic("the host is not made of Wine")
	}
	return m
}

// windows returns the OS interface of a host.
func windows(t *testing.T, h *fleet.Host) *remote.Host {
	t.Helper()
	host, err := machine(h).Windows()
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// await polls until a condition holds.
func (s *stage) await(t *testing.T, what string, holds func(ctx context.Context) (bool, string, error)) {
	t.Helper()
	if err := s.Await(t.Context(), soon, what, holds); err != nil {
		t.Fatalf("%v\n%s", err, s.rollout(t.Context()))
	}
}

// rollout describes, for a failure message, which nodes have or request a slot of the rollout budget.
func (s *stage) rollout(ctx context.Context) string {
	places, instances, nodes := &corev1.ConfigMap{}, &v1alpha1.WindowsInstanceList{}, &corev1.NodeList{}
	err := errors.Join(client.IgnoreNotFound(s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace,
		Name: contract.SlotsConfigMap}, places)), s.Client.List(ctx, instances), s.Client.List(ctx, nodes))
	text := fmt.Sprintf("slots: %s (%v)\n", places.Data, err)
	for _, i := range instances.Items {
		text += fmt.Sprintf("instance %s, node %s, version %s: slot %+v, update %+v, conditions %+v\n", i.Name,
			i.Status.NodeName, i.ResourceVersion, i.Status.Slot, i.Status.Activity, i.Status.Conditions)
	}
	for _, n := range nodes.Items {
		text += fmt.Sprintf("node %s: %+v, %+v, %v\n", n.Name, n.Spec, n.Status.Conditions, n.Annotations)
	}
	return text
}

// tell prints the state and the logs, to help with a failure.
func (s *stage) tell(ctx context.Context) {
	fmt.Fprintf(os.Stderr, "the end of the operator's log:\n%s\n", s.Operator.Tail(60000))
	for _, h := range s.Fleet.Hosts {
		tried, failed := machine(h).Boots()
		fmt.Fprintf(os.Stderr, "== %s: %d boots, %d tried again\n", h.Name, tried, failed)
		if host, err := machine(h).Windows(); err == nil {
			names, _ := host.Services.List(ctx)
			for _, name := range names {
				if service, err := host.Services.Get(ctx, name); err == nil &&
					strings.HasPrefix(service.Description, contract.ManagedDescription) {
					fmt.Fprintf(os.Stderr, "service %s: %s, process %d\n", name, service.State, service.PID)
				}
			}
		}
		logs, _ := filepath.Glob(filepath.Join(machine(h).Path(contract.DirLog), "*", "*"))
		for _, log := range logs {
			content, err := os.ReadFile(log)
			fmt.Fprintf(os.Stderr, "-- %s %v\n%s\n", log, err, content[max(0, len(content)-5000):])
		}
	}
}

// node reads a host's Node.
func (s *stage) node(t *testing.T, h *fleet.Host) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: h.Name}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// manifest reads a host's current manifest.
func (s *stage) manifest(t *testing.T, h *fleet.Host) contract.Manifest {
	t.Helper()
	return s.manifestOf(t, s.node(t, h).Annotations[contract.RevisionAnnotation])
}

// manifestOf reads the manifest of a revision.
func (s *stage) manifestOf(t *testing.T, version string) contract.Manifest {
	t.Helper()
	published := &corev1.ConfigMap{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace,
		Name: contract.ServicesConfigMapPrefix + version}, published); err != nil {
		t.Fatal(err)
	}
	m, err := contract.ManifestFromConfigMap(published.Data)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// settings changes the WindowsMachineConfig.
func (s *stage) settings(t *testing.T, edit func(spec *v1alpha1.WindowsMachineConfigSpec)) {
	t.Helper()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	if err := client.IgnoreNotFound(s.Client.Get(t.Context(), client.ObjectKeyFromObject(config), config)); err != nil {
		t.Fatal(err)
	}
	edit(&config.Spec)
	if err := s.Configure(t.Context(), config.Spec); err != nil {
		t.Fatal(err)
	}
}
