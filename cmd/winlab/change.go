package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/openshift"
	"github.com/windows-nodes/wmco/lab/scene"
)

// dayTwoChange is a change that an administrator makes while the cluster is in use.
type dayTwoChange struct {
	name string
	make func(ctx context.Context) error
}

type changeFigures struct {
	Name string `json:"name"`
	// Times in seconds from the change until a node reports that it has applied the change: the median, the 99th
	// percentile and the maximum over all nodes.
	P50            float64 `json:"p50Seconds"`
	P99            float64 `json:"p99Seconds"`
	Max            float64 `json:"maxSeconds"`
	SSHConnections int64   `json:"sshConnections"`
	// Requests is the number of requests that the operator and all daemons sent because of the change. PerNode is
	// Requests divided by the number of nodes.
	Requests int     `json:"requests"`
	PerNode  float64 `json:"requestsPerNode"`
	// Operator and Daemons are the numbers of requests per node, by verb and resource.
	Operator map[string]float64 `json:"operatorPerNode"`
	Daemons  map[string]float64 `json:"daemonPerNode"`
	// Bytes is the size of the manifest and its Secret. Each daemon reads both.
	Bytes int `json:"bytesPerNode"`
	// Processor is each program's processor time per node for the change, in milliseconds, minus the usage while
	// nothing changes. All hosts run in the program winlab.
	Processor map[string]float64 `json:"processorMillisecondsPerNode,omitempty"`
}

func dayTwoChanges(s *scene.Scene) ([]dayTwoChange, error) {
	c, err := openshift.Client(s.Cluster.Admin())
	if err != nil {
		return nil, err
	}
	edit := func(ctx context.Context, object client.Object, change func()) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return fmt.Errorf("reading %s: %w", object.GetName(), err)
		}
		change()
		return c.Update(ctx, object)
	}
	image := &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	proxy := &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
		Name: contract.PullSecret}}
	return []dayTwoChange{
		{"mirror", func(ctx context.Context) error {
			return c.Create(ctx, &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "bench"},
				Spec: configv1.ImageDigestMirrorSetSpec{
					ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "registry.invalid/team",
						Mirrors: []configv1.ImageMirror{"mirror.invalid/team"}}},
				}})
		}},
		{"CA certificate", func(ctx context.Context) error {
			ca, err := newCA()
			if err != nil {
				return err
			}
			err = c.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, Name: "bench"},
				Data:       map[string]string{"registry.invalid": ca},
			})
			if err != nil {
				return fmt.Errorf("writing a CA certificate: %w", err)
			}
			return edit(ctx, image, func() { image.Spec.AdditionalTrustedCA.Name = "bench" })
		}},
		{"proxy", func(ctx context.Context) error {
			return edit(ctx, proxy, func() { proxy.Spec.HTTPProxy = "http://proxy.invalid:3128" })
		}},
		{"pull secret", func(ctx context.Context) error {
			return edit(ctx, secret, func() {
				secret.Data = map[string][]byte{
					corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.invalid":{"auth":"YTpi"}}}`)}
			})
		}},
	}, nil
}

// settling is how long to wait after the last node has reported the change. Only then are the requests counted, because
// the operator and other clients send some of them late.
const settling = 3 * time.Second

func (b *benchConfig) change(ctx context.Context, s *scene.Scene, watcher *versions, change dayTwoChange,
	quiet quietFigures) (changeFigures, error) {
	f := changeFigures{Name: change.name}
	connections, before := connectionsOf(s.Fleet.Hosts), watcher.all()
	began := time.Now()
	used, err := processorTimes()
	if err != nil {
		return f, err
	}
	if err := change.make(ctx); err != nil {
		return f, err
	}
	took, version, err := watcher.follow(ctx, before, began)
	if err != nil {
		return f, err
	}
	if err = noted(ctx, s, version); err != nil {
		return f, err
	}
	slices.Sort(took)
	f.P50, f.P99, f.Max = percentile(took, 50), percentile(took, 99), percentile(took, 100)
	f.SSHConnections = connectionsOf(s.Fleet.Hosts) - connections
	spent, err := spentSince(used)
	if err != nil {
		return f, err
	}
	f.Processor = map[string]float64{}
	for program, all := range spent {
		beyond := all.Seconds() - quiet.Processor[program]*time.Since(began).Seconds()
		f.Processor[program] = max(0, 1000*beyond/float64(len(took)))
	}
	if err = f.count(s, began, len(took)); err != nil {
		return f, err
	}
	f.Bytes, err = published(ctx, s, version)
	fmt.Fprintf(b.out, "%s: half of %d nodes after %.1f s, all after %.1f s, with %.1f requests for each", f.Name,
		len(took), f.P50, f.Max, f.PerNode)
	if each, known := f.Processor["kube-apiserver"]; known {
		fmt.Fprintf(b.out, ", which take the API server %.0f ms of processor time", each)
	}
	fmt.Fprintln(b.out)
	return f, err
}

// noted waits until the operator has recorded that every node has the version. Then it waits for the time `settling`,
// so that all requests are counted.
func noted(ctx context.Context, s *scene.Scene, version string) error {
	what := fmt.Sprintf("%d instances to say that they have version %s", len(s.Fleet.Hosts), version)
	if err := s.Await(ctx, changeTimeout, what, func(ctx context.Context) (bool, string, error) {
		// Poll slowly. Otherwise these requests would cause most of the API server's load.
		if err := sleep(ctx, time.Second); err != nil {
			return false, "", err
		}
		list, behind := &v1alpha1.WindowsInstanceList{}, 0
		if err := s.Client.List(ctx, list, client.InNamespace(contract.OperatorNamespace)); err != nil {
			return false, "", fmt.Errorf("listing instances: %w", err)
		}
		for i := range list.Items {
			if status := list.Items[i].Status; status.Revision != version ||
				status.Reason() != string(contract.ReasonNodeReady) {
				behind++
			}
		}
		return behind == 0, fmt.Sprintf("%d have yet to", behind), nil
	}); err != nil {
		return err
	}
	return sleep(ctx, settling)
}

func (f *changeFigures) count(s *scene.Scene, since time.Time, nodes int) error {
	by := map[who]map[string]int{operator: {}, daemons: {}}
	for r, err := range cluster.Requests(s.Cluster.AuditLog) {
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		if counted, ours := by[whose(r)]; ours && r.Received.After(since) && r.Resource != "leases" {
			counted[asked(r)]++
			f.Requests++
		}
	}
	f.PerNode = float64(f.Requests) / float64(nodes)
	f.Operator, f.Daemons = perNode(by[operator], nodes), perNode(by[daemons], nodes)
	return nil
}

func asked(r cluster.Request) string {
	if r.Subresource != "" {
		return r.Verb + " " + r.Resource + "/" + r.Subresource
	}
	return r.Verb + " " + r.Resource
}

func perNode(counts map[string]int, nodes int) map[string]float64 {
	all := map[string]float64{}
	for what, n := range maps.All(counts) {
		all[what] = float64(n) / float64(nodes)
	}
	return all
}

// percentile returns a percentile of values, in seconds. values must be sorted and must not be empty.
func percentile(values []time.Duration, percent int) float64 {
	return values[(len(values)-1)*percent/100].Seconds()
}

// published returns the size of the ConfigMap and the Secret that a daemon reads for a version, in bytes.
func published(ctx context.Context, s *scene.Scene, version string) (size int, err error) {
	key := client.ObjectKey{Namespace: contract.OperatorNamespace, Name: contract.ServicesConfigMapPrefix + version}
	manifest, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	if err = s.Client.Get(ctx, key, manifest); err != nil {
		return 0, fmt.Errorf("reading the manifest: %w", err)
	}
	if err = s.Client.Get(ctx, key, secret); err != nil {
		return 0, fmt.Errorf("reading its confidential part: %w", err)
	}
	return manifest.Size() + secret.Size(), nil
}

func newCA() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, BasicConstraintsValid: true, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", fmt.Errorf("making a CA certificate: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})), nil
}
