package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/port"
)

const (
	// outVariable is the variable with the directory that make release wrote. keyVariable is the variable with the file
	// of the public key.
	outVariable = "WMCO_RELEASE"
	keyVariable = "WMCO_RELEASE_PUBLIC_KEY"
)

// listed parses the output of sha256sum into digests by file name.
func listed(t *testing.T, text string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(text) {
		digest, of, found := strings.Cut(strings.TrimSpace(line), "  ")
		if !found || all[of] != "" {
			t.Fatalf("%q is not a valid line of a list of digests, or it occurs twice", line)
		}
		all[of] = digest
	}
	return all
}

// sumOf returns the SHA-256 digest of a file.
func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err = io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func TestA64A65_TheReleaseIsWholeAndTheCommandsOfTheReadmeInstallIt(t *testing.T) {
	t.Parallel()
	out := os.Getenv(outVariable)
	if out == "" {
		t.Skip("this test needs the output of make release; make release and make test-release run it")
	}
	images, repository := map[string]string{}, ""
	for of, digest := range listed(t, read(t, out, "release", "images.txt")) {
		images[of] = "sha256:" + digest
		if repository == "" || len(of) < len(repository) {
			repository = of // the other images have a suffix
		}
	}
	charts, err := filepath.Glob(filepath.Join(out, "release", "wmco-*.tgz"))
	if err != nil || len(charts) != 1 {
		t.Fatalf("the release must have one chart: %v, %v", charts, err)
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(charts[0]), "wmco-"), ".tgz")
	for _, suffix := range []string{"", "-payload", "-e2e", "-bundle", "-catalog"} {
		if images[repository+suffix] == "" || len(images) != 5 {
			t.Errorf("images.txt lacks %s: %v", repository+suffix, images)
		}
	}
	p := publish(t, out, version, repository, images, "IMAGE="+repository)
	r := &release{publication: p, directory: filepath.Join(out, "release"), chart: charts[0]}
	t.Run("files", r.files)
	t.Run("archives", r.archives)
	t.Run("lists of parts", r.lists)
	t.Run("signatures", r.signatures)
	t.Run("chart", r.pushedChart)
	t.Run("plugin", r.plugin)
	t.Run("bundle and catalog", r.offered)
	t.Run("notes", r.notes)
	t.Run("registry", p.holds)
	t.Run("install", func(t *testing.T) { r.starts(t, p.install(t)) })
}

// release is the directory that make release wrote, with the images that were pushed from it.
type release struct {
	*publication
	directory, chart string
}

// files checks that the release has exactly the files that CONTRIBUTING.md lists, each with its digest.
func (r *release) files(t *testing.T) {
	want := []string{"NOTES.md", "images.txt", "image-operator-payload-e2e.oci.tar", "image-bundle.oci.tar",
		"image-catalog.oci.tar", "operator.cdx.json", "payload.cdx.json", "e2e.cdx.json", "bundle.cdx.json",
		"catalog.cdx.json", "plugin.cdx.json", "windows.yaml", "wmco-e2e.yaml",
		"bootstrap-components.yaml", "metadata.yaml", filepath.Base(r.chart)}
	for _, platform := range pluginPlatforms() {
		want = append(want, archiveOf(platform))
	}
	sums := listed(t, read(t, r.directory, "sha256sums.txt"))
	for _, file := range want {
		if sum := sumOf(t, filepath.Join(r.directory, file)); sum != sums[file] {
			t.Errorf("%s has the digest %s, and sha256sums.txt says %q", file, sum, sums[file])
		}
	}
	entries, err := os.ReadDir(r.directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(append(want, "sha256sums.txt"), e.Name()) {
			t.Errorf("the release has an unexpected file %s", e.Name())
		}
	}
	if len(sums) != len(want) {
		t.Errorf("sha256sums.txt has %d files, want %d", len(sums), len(want))
	}
}

func pluginPlatforms() []string {
	return []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64"}
}

func archiveOf(platform string) string {
	if strings.HasPrefix(platform, "windows_") {
		return "kubectl-windows_" + platform + ".zip"
	}
	return "kubectl-windows_" + platform + ".tar.gz"
}

// archives checks that the archives contain all pushed images, and that each blob matches its digest.
func (r *release) archives(t *testing.T) {
	inside := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(r.directory, "*.oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		eachFile(t, f, func(name string, content io.Reader) error {
			digest, isBlob := strings.CutPrefix(name, "blobs/sha256/")
			if !isBlob {
				return nil
			}
			sum := sha256.New()
			if _, err := io.Copy(sum, content); err != nil {
				return err
			}
			inside["sha256:"+digest] = true
			if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
				return fmt.Errorf("%s has the digest %s", name, got)
			}
			return nil
		})
		if err = f.Close(); err != nil {
			t.Error(err)
		}
	}
	for image, digest := range r.images {
		if !inside[digest] {
			t.Errorf("no archive has %s@%s", image, digest)
		}
	}
}

// eachFile calls do for each file of a tar archive.
func eachFile(t *testing.T, archive io.Reader, do func(name string, content io.Reader) error) {
	t.Helper()
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && header.Typeflag == tar.TypeReg {
			err = do(strings.TrimPrefix(header.Name, "./"), reader)
		}
		if err != nil {
			t.Fatalf("reading the archive: %v", err)
		}
	}
}

// attached returns the media types of the artifacts that are attached to an image in the registry.
func (r *release) attached(t *testing.T, image string) []string {
	t.Helper()
	digest, err := name.NewDigest(image + "@" + r.images[image])
	if err != nil {
		t.Fatal(err)
	}
	list, err := remote.Referrers(digest, r.reach...)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := list.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range manifest.Manifests {
		all = append(all, m.ArtifactType)
	}
	return all
}

// lists checks that a list of parts (SBOM) is attached to each image, and that the release has it as a file.
func (r *release) lists(t *testing.T) {
	for image := range r.images {
		if types := r.attached(t, image); !slices.Contains(types, "application/vnd.cyclonedx+json") {
			t.Errorf("image %s has %v attached, but no list of parts", image, types)
		}
	}
	for _, of := range []string{"operator", "payload", "e2e", "bundle", "catalog", "plugin"} {
		var list struct {
			BOMFormat  string `json:"bomFormat"`
			Components []struct {
				Name string `json:"name"`
			} `json:"components"`
		}
		if err := json.Unmarshal([]byte(read(t, r.directory, of+".cdx.json")), &list); err != nil {
			t.Errorf("list of parts of %s: %v", of, err)
		}
		files := of == "bundle" || of == "catalog" // these images contain no program
		if list.BOMFormat != "CycloneDX" || len(list.Components) == 0 && !files {
			t.Errorf("the list of parts of %s is a %q with %d components", of, list.BOMFormat, len(list.Components))
		}
	}
}

// signatures verifies the signatures with the command of docs/install.md. Either all images are signed, or none.
func (r *release) signatures(t *testing.T) {
	key := os.Getenv(keyVariable)
	for image := range r.images {
		signed := slices.Contains(r.attached(t, image), "application/vnd.dev.cosign.artifact.sig.v1+json")
		switch {
		case key == "" && signed:
			t.Logf("the signature of %s was not verified: "+
				"set KEY, with the public key next to it", image)
		case key != "":
			verify := r.command(t, "docs/install.md", "go run -C tools/image . verify ")
			verify = strings.NewReplacer(path.Dir(r.repository)+"/wmco:", image+":", "$PWD/cosign.pub", "'"+key+"'").Replace(verify)
			if said := r.shell(t, verify); !strings.Contains(said, image+":v"+r.version+" is signed by") {
				t.Errorf("the command %s failed: %s", verify, said)
			}
		}
	}
}

// pushedChart checks that the pushed chart is the chart of the release.
func (r *release) pushedChart(t *testing.T) {
	named, err := name.ParseReference(path.Join(path.Dir(r.repository), "charts", "wmco") + ":" + r.version)
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Get(named, r.reach...)
	if err != nil {
		t.Fatal(err)
	}
	var manifest v1.Manifest
	if err = json.Unmarshal(found.Manifest, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || manifest.Layers[0].Digest.Hex != sumOf(t, r.chart) {
		t.Errorf("the registry has another chart: %+v", manifest.Layers)
	}
}

// plugin checks that Krew's manifest names the archives of the release. It also runs the plugin for this machine's
// platform.
func (r *release) plugin(t *testing.T) {
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				URI, SHA256, Bin string
				Selector         struct{ MatchLabels map[string]string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, r.directory, "windows.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Spec.Version != "v"+r.version {
		t.Errorf("Krew's manifest is of version %s", manifest.Spec.Version)
	}
	var platforms []string
	for _, p := range manifest.Spec.Platforms {
		platform := p.Selector.MatchLabels["os"] + "_" + p.Selector.MatchLabels["arch"]
		platforms = append(platforms, platform)
		if file := path.Base(p.URI); file != archiveOf(platform) || sumOf(t, filepath.Join(r.directory, file)) != p.SHA256 {
			t.Errorf("Krew's manifest has %s with the digest %s for %s", p.URI, p.SHA256, platform)
		}
		if !strings.HasSuffix(path.Dir(p.URI), "/v"+r.version) {
			t.Errorf("the release has no file %s", p.URI)
		}
	}
	slices.Sort(platforms)
	if !slices.Equal(platforms, pluginPlatforms()) {
		t.Errorf("Krew's manifest is for %v", platforms)
	}
	f, err := os.Open(filepath.Join(r.directory, archiveOf("linux_"+runtime.GOARCH)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	eachFile(t, content, func(name string, content io.Reader) error {
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(into, filepath.Base(name)), data, 0o700) //nolint:gosec // a program
	})
	if said := r.execute(t, filepath.Join(into, "kubectl-windows"), "--version"); !strings.Contains(said, r.version) {
		t.Errorf("the plugin reports the version %s", said)
	}
}

// eachFileOf calls do for each file of an image for this machine's platform.
func (r *release) eachFileOf(t *testing.T, image string, do func(name string, content io.Reader) error) {
	t.Helper()
	named, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(named, append(slices.Clone(r.reach),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))...)
	if err != nil {
		t.Fatalf("pulling %s: %v", image, err)
	}
	content := mutate.Extract(pulled)
	defer content.Close()
	eachFile(t, content, func(name string, content io.Reader) error { return do(strings.TrimPrefix(name, "/"), content) })
}

// texts returns the files of an image that contains only manifests.
func (r *release) texts(t *testing.T, image string) map[string]string {
	t.Helper()
	all := map[string]string{}
	r.eachFileOf(t, image, func(name string, content io.Reader) error {
		data, err := io.ReadAll(content)
		all[name] = string(data)
		return err
	})
	return all
}

var (
	// imageNamed matches an image in a manifest.
	imageNamed = regexp.MustCompile(`(?m)\bimage: (\S+)$`)
	ofRelease  = regexp.MustCompile(`^(.+)@(sha256:[0-9a-f]{64})$`)
)

// pushed returns the repositories of the images that a manifest names. Each image must be named by digest and must have
// been pushed.
func (r *release) pushed(t *testing.T, manifest string) []string {
	t.Helper()
	var all []string
	for _, match := range imageNamed.FindAllStringSubmatch(manifest, -1) {
		named := ofRelease.FindStringSubmatch(match[1])
		if named == nil || r.images[named[1]] != named[2] {
			t.Errorf("%s was not pushed", match[1])
			continue
		}
		all = append(all, named[1])
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// offered checks the images that refer to other images: the catalog must name the bundle, the bundle must name the
// operator, and Sonobuoy's plugin must name the image with the checks.
func (r *release) offered(t *testing.T) {
	catalog := ""
	for file, text := range r.texts(t, r.repository+"-catalog:v"+r.version) {
		if !strings.HasPrefix(file, "configs/") {
			t.Errorf("the catalog has the unexpected file %s", file)
		}
		catalog += text
	}
	if named := r.pushed(t, catalog); !slices.Equal(named, []string{r.repository, r.repository + "-bundle"}) ||
		!strings.Contains(catalog, "v"+r.version) {
		t.Errorf("the catalog names %v, or it has another version:\n%s", named, catalog)
	}
	bundle := r.texts(t, r.repository+"-bundle@"+r.images[r.repository+"-bundle"])
	csv := bundle["manifests/"+operator+".clusterserviceversion.yaml"]
	if named := r.pushed(t, csv); !slices.Equal(named, []string{r.repository}) || !strings.Contains(csv, "\n  version: "+r.version+"\n") {
		t.Errorf("the bundle names %v, or it has another version", named)
	}
	if bundle["metadata/annotations.yaml"] == "" {
		t.Error("the bundle has no annotations")
	}
	for _, crd := range manifests(t) {
		kind := strings.TrimSuffix(strings.SplitN(filepath.Base(crd), "_", 2)[1], ".yaml")
		if !slices.ContainsFunc(slices.Collect(maps.Keys(bundle)), func(file string) bool {
			return strings.HasPrefix(file, "manifests/") && strings.Contains(bundle[file], "kind: CustomResourceDefinition") &&
				strings.Contains(bundle[file], "plural: "+kind+"\n")
		}) {
			t.Errorf("the bundle has no CRD of %s", kind)
		}
	}
	if named := r.pushed(t, read(t, r.directory, "wmco-e2e.yaml")); !slices.Equal(named, []string{r.repository + "-e2e"}) {
		t.Errorf("the plugin for Sonobuoy names %v", named)
	}
}

// notes checks that the release notes contain the README's command and all digests.
func (r *release) notes(t *testing.T) {
	text := read(t, r.directory, "NOTES.md")
	for _, digest := range r.images {
		if !strings.Contains(text, digest) {
			t.Errorf("the notes lack the digest %s", digest)
		}
	}
	if command := r.command(t, "README.md", "helm install "); !strings.Contains(text, "    "+command+"\n") {
		t.Errorf("the notes don't have the README's %s:\n%s", command, text)
	}
}

// starts runs the operator from the pushed image as its Pod would: with the image's payload, and with the installed
// rights. It waits until the operator is healthy and has reported the cluster's state.
func (r *release) starts(t *testing.T, lab *cluster.Cluster) {
	t.Helper()
	dir := t.TempDir()
	r.eachFileOf(t, r.repository+"@"+r.images[r.repository], func(name string, content io.Reader) error {
		to := filepath.Join(dir, filepath.Clean("/"+name))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	})
	_, rights, err := lab.ServiceAccountConfig(t.Context(), contract.OperatorNamespace, contract.OperatorServiceAccount, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err = os.WriteFile(kubeconfig, rights, 0o600); err != nil {
		t.Fatal(err)
	}
	var addresses [2]string
	for i := range addresses {
		held, err := port.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(held.Release)
		addresses[i] = held.Address()
	}
	var log bytes.Buffer
	c := exec.CommandContext(t.Context(), filepath.Join(dir, "usr/local/bin", operator), "--kubeconfig", kubeconfig,
		"--payload-dir", filepath.Join(dir, "payload"), "--metrics-bind-address", "0", "--health-probe-bind-address", addresses[0],
		"--payload-bind-address", addresses[1], "--payload-advertise", addresses[1])
	c.Env, c.Stdout, c.Stderr = []string{"WATCH_NAMESPACE=" + contract.OperatorNamespace, "POD_NAME=" + operator}, &log, &log
	if err = c.Start(); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), time.Second, 3*time.Minute, true, func(context.Context) (bool, error) {
		return r.reports(t, lab, addresses[0]), nil
	})
	_ = c.Process.Kill() // the process has ended, or Wait reports an error
	ended := c.Wait()
	if err != nil {
		t.Errorf("the operator is not healthy: %v, %v\n%s", err, ended, &log)
	}
}

// reports reports whether the operator is healthy and has written its conditions.
func (r *release) reports(t *testing.T, lab *cluster.Cluster, health string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false // the operator does not listen yet
	}
	if response.Body.Close() != nil || response.StatusCode != http.StatusOK {
		return false
	}
	return r.shell(t, "kubectl get winconf -o jsonpath='{.items[*].status.conditions[*].type}'", "KUBECONFIG="+lab.Kubeconfig) != ""
}
