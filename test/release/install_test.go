package release_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/registry"
	"github.com/windows-nodes/wmco/test/page"
)

const (
	// operator is the name of the operator's Deployment.
	operator = "windows-machine-config-operator"
	// privateKey is the content of the file that the README's command reads.
	privateKey = "the private key\n"
	// login is the user and password of the account that pushes.
	login = "publisher:token"
)

// publication is a release that was pushed to a registry of the lab.
type publication struct {
	// version is the release's version. repository is the repository of the operator's image.
	version, repository string
	// images are the digests of all images, by repository.
	images map[string]string
	// internet provides the registry. reach are options for clients to reach it.
	internet *registry.Internet
	reach    []remote.Option
	// environment contains the variables for commands. With them, commands can reach only this registry, and they have
	// no credentials.
	environment []string
	// programs is a directory with the programs that commands need: helm and kubectl.
	programs string
}

// environment returns this process's variables, except those that change make's behavior, or that select registries or
// credentials.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		key, _, _ := strings.Cut(strings.ToUpper(variable), "=")
		return strings.HasPrefix(key, "HELM_") || strings.HasPrefix(key, "MAKE") ||
			strings.HasPrefix(key, "GITHUB_") || slices.Contains([]string{"MFLAGS", "KUBECONFIG", "DOCKER_CONFIG",
			"REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "OUT", "VERSION", "SOURCE", "IMAGE", "KEY", "PUSH",
			"REPOSITORY", "PLUGIN_URL"}, key)
	})
}

// publish runs the workflow's command that pushes the release in the directory out. The images must be those of the
// repository.
func publish(t *testing.T, out, version, repository string, images map[string]string, more ...string) *publication {
	t.Helper()
	ca := registry.NewCA(t, "registries")
	host, _, _ := strings.Cut(repository, "/")
	p := &publication{version: version, repository: repository, images: images, programs: t.TempDir(),
		internet: registry.StartInternet(t, ca, host, login)}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca.PEM)
	p.reach = []remote.Option{remote.WithContext(t.Context()), remote.WithTransport(&http.Transport{
		Proxy: http.ProxyURL(p.internet.Proxy), TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}})}
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "ca.pem"), ca.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	// Run these Go commands once with network access. Then their modules are in the cache, and later calls need no
	// network.
	for _, args := range [][]string{{"run", "-C", "tools/image", ".", "--help"}, {"-C", "tools/chart", "tool", "helm", "version"}} {
		p.execute(t, "go", args...)
	}
	p.link(t, strings.TrimSpace(p.execute(t, "go", "-C", "tools/chart", "tool", "-n", "helm")))
	for _, proxy := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		p.environment = append(p.environment, proxy+"="+p.internet.Proxy.String())
	}
	p.environment = append(p.environment, "NO_PROXY=", "no_proxy=", "SSL_CERT_FILE="+filepath.Join(home, "ca.pem"),
		"DOCKER_CONFIG="+home, "REGISTRY_AUTH_FILE="+filepath.Join(home, "none"),
		"HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	t.Cleanup(func() {
		if others := p.internet.Refused(); len(others) > 0 {
			t.Errorf("the commands also contacted %v", others)
		}
	})
	// These are the credentials that docker login writes. In the workflow, the previous step runs it. The user who
	// installs the release has no credentials.
	docker := t.TempDir()
	if err := os.WriteFile(filepath.Join(docker, "config.json"), fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, host,
		base64.StdEncoding.EncodeToString([]byte(login))), 0o600); err != nil {
		t.Fatal(err)
	}
	pushing := find(t, "publish", runs("make publish "))
	p.shell(t, pushing.Run,
		append(more, "DOCKER_CONFIG="+docker, "VERSION="+version, "MAKEFLAGS=OUT="+artifact(t, out))...)
	return p
}

// execute runs a program in the source tree.
func (p *publication) execute(t *testing.T, program string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir, c.Env = root(t), slices.Concat(environment(), p.environment)
	output, err := c.Output()
	if err != nil {
		said := (*exec.ExitError)(nil)
		_ = errors.As(err, &said)
		t.Fatalf("%s %s: %v: %s%s", program, strings.Join(args, " "), err, output, said.Stderr)
	}
	return string(output)
}

// link adds a program to the directory of programs.
func (p *publication) link(t *testing.T, program string) {
	t.Helper()
	if err := os.Symlink(program, filepath.Join(p.programs, filepath.Base(program))); err != nil {
		t.Fatal(err)
	}
}

// shell runs a script in the source tree as a runner of GitHub does.
func (p *publication) shell(t *testing.T, script string, more ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
	c.Dir = root(t)
	c.Env = slices.Concat(environment(), p.environment,
		[]string{"PATH=" + p.programs + string(os.PathListSeparator) + os.Getenv("PATH")}, more)
	output, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, output)
	}
	return string(output)
}

// command returns a command of a page. It replaces the page's example values with values of this release.
func (p *publication) command(t *testing.T, file, beginning string) string {
	t.Helper()
	text, err := page.Command(read(t, root(t), file), beginning)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return strings.NewReplacer("<registry>", path.Dir(p.repository), "0.1.0", p.version).Replace(text)
}

// install runs the README's commands on a control plane and checks the result. It returns the control plane.
func (p *publication) install(t *testing.T) *cluster.Cluster {
	t.Helper()
	lab, err := cluster.Start(t.Context(), cluster.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Stop(); err != nil {
			t.Error(err)
		}
	})
	p.link(t, lab.Binaries.Kubectl)
	config, key := "KUBECONFIG="+lab.Kubeconfig, filepath.Join(t.TempDir(), "key")
	if err = os.WriteFile(key, []byte(privateKey), 0o600); err != nil {
		t.Fatal(err)
	}
	p.shell(t, p.command(t, "README.md", "helm install "), config)
	p.shell(t, strings.ReplaceAll(p.command(t, "README.md", "kubectl create secret "), "<file>", key), config)

	admin, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := admin.AppsV1().Deployments(contract.OperatorNamespace).Get(t.Context(), operator, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := p.repository + "@" + p.images[p.repository]
	for _, c := range deployment.Spec.Template.Spec.Containers {
		if c.Image != want {
			t.Errorf("the operator's Pods run the image %s, want the pushed image %s", c.Image, want)
		}
	}
	p.serves(t, want)
	secret, err := admin.CoreV1().Secrets(contract.OperatorNamespace).Get(t.Context(), contract.PrivateKeySecret, metav1.GetOptions{})
	if err != nil || string(secret.Data[contract.PrivateKeyField]) != privateKey {
		t.Errorf("the Secret with the private key is missing: %v", err)
	}
	crds := manifests(t)
	for _, crd := range crds {
		p.shell(t, "kubectl wait --for=condition=Established --timeout=60s -f '"+crd+"'", config)
	}
	if len(crds) != 2 {
		t.Errorf("config/crd must have two CRDs, it has %v", crds)
	}
	p.shell(t, "kubectl get wininst,winconf --all-namespaces", config)
	return lab
}

// manifests returns the files of the CRDs.
func manifests(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root(t), "config", "crd", "windowsmachineconfig.openshift.io_*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// serves checks that the registry has all parts of an image that kubelet fetches, for every platform.
func (p *publication) serves(t *testing.T, image string) {
	t.Helper()
	named, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Get(named, p.reach...)
	if err != nil {
		t.Errorf("pulling %s: %v", image, err)
		return
	}
	for _, one := range p.platforms(t, found) {
		if err := whole(one); err != nil {
			t.Errorf("pulling %s: %v", image, err)
		}
	}
}

// platforms returns the images of an index. For a single image, it returns this image.
func (p *publication) platforms(t *testing.T, found *remote.Descriptor) []v1.Image {
	t.Helper()
	if !found.MediaType.IsIndex() {
		one, err := found.Image()
		if err != nil {
			t.Fatal(err)
		}
		return []v1.Image{one}
	}
	index, err := found.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var all []v1.Image
	var architectures []string
	for _, m := range manifest.Manifests {
		one, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		all, architectures = append(all, one), append(architectures, m.Platform.String())
	}
	if !slices.Equal(architectures, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("image %s is for the architectures %v", found.Digest, architectures)
	}
	return all
}

// whole reads the configuration of an image, and checks that all its layers exist.
func whole(image v1.Image) error {
	if _, err := image.ConfigFile(); err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	if len(layers) == 0 {
		return errors.New("the image has no layer")
	}
	for _, layer := range layers {
		if exists, err := partial.Exists(layer); err != nil || !exists {
			return fmt.Errorf("a layer is missing: %w", err)
		}
	}
	return nil
}

// holds checks that the registry has exactly these repositories, and each image under the version's tag.
func (p *publication) holds(t *testing.T) {
	t.Helper()
	host, err := name.NewRegistry(p.internet.Host)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Catalog(t.Context(), host, p.reach...)
	if err != nil {
		t.Fatal(err)
	}
	chart := path.Join(path.Dir(p.repository), "charts", "wmco")
	want := []string{strings.TrimPrefix(chart, p.internet.Host+"/")}
	for repository, digest := range p.images {
		want = append(want, strings.TrimPrefix(repository, p.internet.Host+"/"))
		tagged, err := p.head(t, repository+":v"+p.version)
		if err != nil || tagged.Digest.String() != digest {
			t.Errorf("%s:v%s is %v, want %s: %v", repository, p.version, tagged, digest, err)
		}
		p.serves(t, repository+"@"+digest)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the registry has %v, want %v", got, want)
	}
	if _, err = p.head(t, chart+":"+p.version); err != nil {
		t.Errorf("the chart: %v", err)
	}
}

func (p *publication) head(t *testing.T, image string) (*v1.Descriptor, error) {
	t.Helper()
	named, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	return remote.Head(named, p.reach...)
}

// small creates a release with empty images, in the form that make publish reads. It returns the digests.
func small(t *testing.T, out, version, repository string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, directory := range []struct {
		path  string
		names []string
	}{{"image", []string{"operator", "payload", "e2e"}}, {"olm/bundle-image", []string{"bundle"}}, {"olm/catalog-image", []string{"catalog"}}} {
		to := filepath.Join(out, directory.path)
		if err := os.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		written, err := layout.Write(to, empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		for _, as := range directory.names {
			image, err := random.Image(100, 2)
			if err != nil {
				t.Fatal(err)
			}
			digest, err := image.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if err = written.AppendImage(image, layout.WithAnnotations(
				map[string]string{"org.opencontainers.image.ref.name": as})); err != nil {
				t.Fatal(err)
			}
			suffix := "-" + as
			if as == "operator" {
				suffix = ""
			}
			all[repository+suffix] = digest.String()
		}
	}
	if err := os.Mkdir(filepath.Join(out, "release"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "make", "chart", "OUT="+out, "VERSION="+version, "IMAGE="+repository+"@"+all[repository])
	c.Dir, c.Env = root(t), environment()
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("make chart: %v\n%s", err, output)
	}
	return all
}

func TestA65_TheCommandsOfTheReadmeInstallWhatTheWorkflowOfAForkPushes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped with -short, because this test starts a control plane")
	}
	out := t.TempDir()
	images := small(t, out, "0.1.0", "ghcr.io/some-one/wmco")
	p := publish(t, out, "0.1.0", "ghcr.io/some-one/wmco", images, "GITHUB_REPOSITORY=Some-One/wmco")
	p.holds(t)
	p.install(t)
}
