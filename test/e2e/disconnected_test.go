package e2e_test

import (
	"archive/tar"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/registry"
	"github.com/windows-nodes/wmco/lab/scene"
)

// The project's own commands create the catalog, the bundle and the operator's image, and push them to a registry. The
// catalog and every image that it names are copied to a second registry, as a mirroring tool does. Then the first
// registry is closed. The installation must work with the copies alone, and hosts must join.
func TestA67_FromCopiesOfWhatTheBundleNamesEverythingInstallsAndHostsJoin(t *testing.T) {
	t.Parallel()
	ca := registry.NewCA(t, "registries")
	source, copies := registry.Start(t, ca), registry.Start(t, ca)
	reach := trusting(ca)
	publish(t, ca, source.Host+"/wmco")

	catalog := source.Host + "/wmco-catalog:v0.1.0"
	copyImage(t, reach, catalog, source.Host, copies.Host)
	for _, image := range related(t, unpacked(t, reach, strings.Replace(catalog, source.Host, copies.Host, 1))) {
		copyImage(t, reach, image, source.Host, copies.Host)
	}
	source.Close()

	// As OLM does, go from the catalog to the bundle and from the bundle to the operator's image, each by digest.
	pull := func(image string) string {
		return unpacked(t, reach, strings.Replace(image, source.Host, copies.Host, 1))
	}
	images := related(t, pull(catalog))
	if len(images) != 2 {
		t.Fatalf("the catalog names the images %v, want the bundle and the operator", images)
	}
	operator := pull(images[1])
	o := options(1)
	o.Operator, o.Payload = filepath.Join(operator, "usr/local/bin/windows-machine-config-operator"),
		filepath.Join(operator, "payload")
	o.Bundle = pull(images[0])
	s := own(t, o)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	s.drop(t, hosts...)
	s.gone(t, hosts...)
}

// publish builds all images and pushes them to a repository, as docs/install.md describes.
func publish(t *testing.T, ca *registry.CA, repository string) {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	out, pem := t.TempDir(), filepath.Join(t.TempDir(), "ca.pem")
	if err = os.WriteFile(pem, ca.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(out, "payload")
	if err = scene.WritePayload(programs); err != nil {
		t.Fatal(err)
	}
	do := func(program string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), program, args...)
		c.Dir, c.Env = root, append(os.Environ(), "SSL_CERT_FILE="+pem)
		if output, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, output)
		}
	}
	image := filepath.Join(out, "tool")
	do("go", "build", "-C", filepath.Join(root, "tools", "image"), "-o", image, ".")
	do(image, "build", "--root", root, "--payload", programs, "--out", filepath.Join(out, "image"), "--version", "0.1.0",
		"--repository", repository, "--platforms", "linux/amd64", "--incomplete")
	do(image, "push", repository, "--from", filepath.Join(out, "image"), "--tag", "v0.1.0")
	do("make", "bundle", "OUT="+out, "PUSH="+repository, "VERSION=0.1.0")
}

// trusting returns an option to reach registries whose certificates a CA has signed.
func trusting(ca *registry.CA) remote.Option {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	return remote.WithTransport(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
}

// copyImage copies an image to another registry under the same name.
func copyImage(t *testing.T, reach remote.Option, image, from, to string) {
	t.Helper()
	source, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	target, err := name.ParseReference(strings.Replace(image, from, to, 1))
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Get(source, reach)
	if err != nil {
		t.Fatal(err)
	}
	if found.MediaType.IsIndex() {
		var index v1.ImageIndex
		if index, err = found.ImageIndex(); err == nil {
			err = remote.WriteIndex(target, index, reach)
		}
	} else {
		var one v1.Image
		if one, err = found.Image(); err == nil {
			err = remote.Write(target, one, reach)
		}
	}
	if err != nil {
		t.Fatalf("copying %s: %v", image, err)
	}
}

// related returns the images that a catalog names: first the bundle, then the operator.
func related(t *testing.T, catalog string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(catalog, "configs", "*", "catalog.yaml"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("the catalog files are %v, %v", paths, err)
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for part := range bytes.SplitSeq(data, []byte("---\n")) {
		var blob struct{ RelatedImages []struct{ Image string } }
		if err = yaml.Unmarshal(part, &blob); err != nil {
			t.Fatal(err)
		}
		for _, r := range blob.RelatedImages {
			if !strings.Contains(r.Image, "@sha256:") {
				t.Errorf("a mirror by digest does not serve %s", r.Image)
			}
			all = append(all, r.Image)
		}
	}
	return all
}

// unpacked pulls an image for this machine's platform and unpacks it into a directory.
func unpacked(t *testing.T, reach remote.Option, image string) string {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, reach, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		t.Fatalf("pulling %s: %v", image, err)
	}
	dir := t.TempDir()
	content := mutate.Extract(pulled)
	defer content.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return dir
		} else if err != nil {
			t.Fatalf("unpacking %s: %v", image, err)
		}
		if err = unpack(filepath.Join(dir, filepath.Clean("/"+header.Name)), header, archive); err != nil {
			t.Fatalf("unpacking %s: %v", image, err)
		}
	}
}

func unpack(path string, header *tar.Header, content io.Reader) (err error) {
	if header.Typeflag == tar.TypeDir {
		return os.MkdirAll(path, 0o755)
	}
	if header.Typeflag != tar.TypeReg {
		return fmt.Errorf("%s is neither a file nor a directory", header.Name)
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, header.FileInfo().Mode())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, content) //nolint:gosec // images of this test
	return err
}
