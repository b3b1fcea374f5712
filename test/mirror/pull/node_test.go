package pull_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/containerd/v2/core/transfer"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/log"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	bbolt "go.etcd.io/bbolt"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

const resolverToken = "0123456789abcdef0123"

func TestMain(m *testing.M) {
	if err := log.SetLevel("panic"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// node is the daemon's resolver and the part of containerd that pulls: its reader of hosts.toml, its resolver, its
// fetcher and its content store.
type node struct {
	net      *network
	resolver *resolver.Resolver
	url      string // URL of the resolver
	root     string
	store    content.Store
	stop     func()
	parallel int    // number of parts of a layer that containerd fetches in parallel
	pod      string // user:password of the pod's imagePullSecrets, which kubelet passes to containerd
	log      *logrus.Entry
	// headerTimeout is how long containerd waits for a header. 0 means the time on nodes.
	headerTimeout time.Duration
	mu            sync.Mutex
	reports       []string
}

func (d *node) hear(r resolver.Report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reports = append(d.reports, r.Message())
}

// newNode returns a node with time limits that are long enough for a busy machine.
func newNode(t *testing.T, n *network) *node {
	t.Helper()
	return newNodeWith(t, n, resolver.Options{FirstByte: 20 * time.Second})
}

func newNodeWith(t *testing.T, n *network, o resolver.Options) *node {
	t.Helper()
	d := &node{net: n, root: t.TempDir()}
	o.Token, o.Connect, o.OnReport = resolverToken, 20*time.Second, d.hear
	r := resolver.New(o)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.resolver = r
	d.url = "http://" + listener.Addr().String()
	if d.store, err = local.NewStore(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, listener) }()
	stopped := false
	d.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(d.stop)
	return d
}

// settings are the cluster's settings: rules in the form "source kind mirror … [never]", and users by key of the pull
// secret.
type settings struct {
	rules []string
	users map[string]string
	// sources are the cluster's settings for registries, except mirrors.
	sources *contract.RegistrySources
}

// apply applies a new desired state as the daemon does.
func (d *node) apply(t *testing.T, s settings) {
	t.Helper()
	var all []contract.MirrorRule
	for _, text := range s.rules {
		words := strings.Fields(text)
		rule := contract.MirrorRule{Source: words[0], Kind: contract.PullKind(words[1]), Mirrors: words[2:]}
		if i := slices.Index(rule.Mirrors, "never"); i >= 0 {
			rule.NeverContactSource, rule.Mirrors = true, slices.Delete(rule.Mirrors, i, i+1)
		}
		all = append(all, rule)
	}
	rules, err := mirror.NewRules(all)
	if err == nil && s.sources != nil {
		checked, _ := mirror.CheckSources(*s.sources)
		if checked != nil {
			rules, err = rules.Restrict(*checked)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	secret := parseSecret(t, s.users)
	d.resolver.Update(resolver.Config{Rules: rules, PullSecret: secret, Roots: d.net.roots(), Proxy: d.net.proxyFor})
	writeHosts(t, d.root, mirror.HostsFile(d.url, resolverToken))
}

// writeHosts writes the hosts.toml that containerd reads for every registry.
func writeHosts(t testing.TB, root, file string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(strings.ReplaceAll(
		contract.PathHosts[len(contract.DirRegistries):], `\`, "/")))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
}

func parseSecret(t *testing.T, users map[string]string) mirror.PullSecret {
	t.Helper()
	auths := map[string]any{}
	for key, user := range users {
		auths[key] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user))}
	}
	file, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := mirror.ParsePullSecret(file)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// pull pulls an image with all its parts, as containerd does.
func (d *node) pull(ctx context.Context, image string) error {
	if d.log != nil {
		ctx = log.WithLogger(ctx, d.log)
	}
	r := docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, config.HostOptions{
		HostDir: config.HostDirFromRoot(d.root),
		// Ignore the server, like ParseAuth in containerd's CRI plugin: kubelet passes credentials without a server,
		// so every server gets them.
		Credentials: func(string) (user, password string, err error) {
			user, password, _ = strings.Cut(d.pod, ":")
			return user, password, nil
		},
		UpdateClient: func(client *http.Client) error {
			client.Transport.(*http.Transport).DialContext = d.dial
			client.Transport.(*http.Transport).DisableKeepAlives = true
			if d.headerTimeout > 0 {
				client.Transport.(*http.Transport).ResponseHeaderTimeout = d.headerTimeout
			}
			return nil
		},
	})})
	if d.parallel > 1 {
		r.(remotes.ResolverWithOptions).SetOptions(transfer.WithMaxConcurrentDownloads(d.parallel),
			transfer.WithConcurrentLayerFetchBuffer(300_000))
	}
	name, found, err := r.Resolve(ctx, image)
	if err != nil {
		return fmt.Errorf("resolving: %w", err)
	}
	fetcher, err := r.Fetcher(ctx, name)
	if err != nil {
		return fmt.Errorf("creating a fetcher: %w", err)
	}
	handler := images.Handlers(remotes.FetchHandler(d.store, fetcher), images.ChildrenHandler(d.store))
	if err := images.Dispatch(ctx, handler, nil, found); err != nil {
		return fmt.Errorf("fetching: %w", err)
	}
	return d.complete(ctx, found)
}

// dial connects to the resolver on loopback. All other connections go to the fake network.
func (d *node) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if "http://"+address == d.url {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return d.net.dial(ctx, address)
}

// complete returns an error if a part of an image is missing in the store. It doesn't check the content, because the
// store has checked it.
func (d *node) complete(ctx context.Context, from ocispec.Descriptor) error {
	blobs := 0
	err := images.Walk(ctx, images.Handlers(images.HandlerFunc(func(ctx context.Context,
		one ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		info, err := d.store.Info(ctx, one.Digest)
		if err != nil {
			return nil, err
		}
		if info.Size != one.Size {
			return nil, fmt.Errorf("%s has %d bytes", one.Digest, info.Size)
		}
		blobs++
		return nil, nil
	}), images.ChildrenHandler(d.store)), from)
	if err == nil && blobs < 9 { // an index, two manifests, two configurations, four layers
		return fmt.Errorf("the store has only %d parts of the image", blobs)
	}
	return err
}

// mustPull pulls an image, and fails the test if the pull fails.
func (d *node) mustPull(t *testing.T, image string) {
	t.Helper()
	if err := d.pull(t.Context(), image); err != nil {
		t.Fatalf("pulling %s: %v\n%s", image, err, d.said())
	}
}

// mustFail pulls an image, and fails the test if the pull succeeds.
func (d *node) mustFail(t *testing.T, image string) {
	t.Helper()
	if err := d.pull(t.Context(), image); err == nil {
		t.Fatalf("pulling %s succeeded, but it must fail", image)
	}
}

// said returns the messages of the resolver.
func (d *node) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.reports, "\n")
}

// forget empties the store, as if this were a new node.
func (d *node) forget(t *testing.T) {
	t.Helper()
	var err error
	if d.store, err = local.NewStore(t.TempDir()); err != nil {
		t.Fatal(err)
	}
}

// withGarbageCollection gives the node containerd's own store, with leases. A pull that fails releases its lease, so
// that its partial content is collected.
func (d *node) withGarbageCollection(t *testing.T) (pull func(image string) error) {
	t.Helper()
	path := t.TempDir()
	files, err := local.NewStore(path)
	if err != nil {
		t.Fatal(err)
	}
	bolt, err := bbolt.Open(filepath.Join(path, "meta.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bolt.Close() })
	db := metadata.NewDB(bolt, files, nil)
	if err := db.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.store = db.ContentStore()
	manager := metadata.NewLeaseManager(db)
	return func(image string) error {
		ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
		lease, err := manager.Create(ctx, leases.WithRandomID())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := manager.Delete(ctx, lease); err != nil {
				t.Fatal(err)
			}
			if _, err := db.GarbageCollect(ctx); err != nil {
				t.Fatal(err)
			}
		}()
		return d.pull(leases.WithLease(ctx, lease.ID), image)
	}
}
