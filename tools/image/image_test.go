package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

// source is the input of an image build: a payload with two programs, and one program for each platform. The programs
// are copies of this test's own binary, which has Go's build information like the real programs.
type source struct{ payload, binary string }

func newSource(t *testing.T) source {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := source{filepath.Join(t.TempDir(), "payload"), self}
	builder, err := assembly.NewBuilder(s.payload)
	if err != nil {
		t.Fatal(err)
	}
	for n, path := range map[string]string{"kubelet.exe": self, "csi-proxy.exe": "image_test.go"} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := builder.Add(n, "v1.2.3", "supplied", bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := builder.Finish("0.1.0"); err != nil {
		t.Fatal(err)
	}
	return s
}

// build does the same as the command, but doesn't compile the operator.
func (s source) build(t *testing.T, out string, key signature.Signer) {
	t.Helper()
	o := buildOptions{version: "0.1.0", revision: "abc", repository: "registry.example/wmco"}
	manifest, layers, err := payloadLayers(s.payload)
	if err != nil {
		t.Fatal(err)
	}
	parts := payloadParts(s.payload, manifest)
	copies, err := programImage(v1.Platform{OS: "linux", Architecture: "amd64"}, copier, s.binary,
		labels{title: "t", version: "0.1.0"}, layers)
	if err != nil {
		t.Fatal(err)
	}
	beside, err := name.NewRepository(o.repository + suffixes["payload"])
	if err != nil {
		t.Fatal(err)
	}
	carried, err := finish("payload", copies, "0.1.0", parts, beside, key)
	if err != nil {
		t.Fatal(err)
	}
	images, order := map[string]v1.Image{}, []v1.Platform{}
	for _, text := range []string{"linux/amd64", "linux/arm64"} {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			t.Fatal(err)
		}
		images[text], err = programImage(*platform, operator, s.binary, labels{title: "t", version: "0.1.0"}, layers)
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, *platform)
	}
	repository, err := name.NewRepository(o.repository)
	if err != nil {
		t.Fatal(err)
	}
	parts = append(parts, part{"windows-machine-config-operator", "0.1.0", s.binary})
	runs, err := finish("operator", index(images, order), "0.1.0", parts, repository, key)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := programImage(v1.Platform{OS: "linux", Architecture: "amd64"}, e2e, s.binary,
		labels{title: "t", version: "0.1.0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	own, err := name.NewRepository(o.repository + suffixes["e2e"])
	if err != nil {
		t.Fatal(err)
	}
	checks, err := finish("e2e", alone, "0.1.0", []part{{e2e, "0.1.0", s.binary}}, own, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(out, runs, carried, checks); err != nil {
		t.Fatal(err)
	}
}

// keys creates a key pair and returns the signer and the verifier. Both are read from files, as users do.
func keys(t *testing.T, password string) (signature.Signer, signature.Verifier) {
	t.Helper()
	pass := cryptoutils.PassFunc(nil)
	if password != "" {
		t.Setenv(passwordVariable, password)
		pass = cryptoutils.StaticPasswordFunc([]byte(password))
	}
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), pass)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for n, text := range map[string][]byte{"cosign.key": private, "cosign.pub": public} {
		if err := os.WriteFile(filepath.Join(dir, n), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	by, err := signer(filepath.Join(dir, "cosign.key"))
	if err != nil {
		t.Fatal(err)
	}
	check, err := verifier(filepath.Join(dir, "cosign.pub"))
	if err != nil {
		t.Fatal(err)
	}
	return by, check
}

// registry starts a real registry, and returns its host and an option to reach it. requests is the number of requests
// after which the registry breaks a connection. With a negative number, it never breaks a connection.
func registry(t *testing.T, requests *atomic.Int64) (string, remote.Option) {
	t.Helper()
	host, transport := serve(t, requests)
	return host, remote.WithTransport(transport)
}

// serve is like registry, but returns the HTTP transport.
func serve(t *testing.T, requests *atomic.Int64) (string, http.RoundTripper) {
	t.Helper()
	c := &configuration.Configuration{Storage: configuration.Storage{"inmemory": {}, "delete": {"enabled": true}}}
	c.HTTP.Secret = "s"
	c.Log.Level, c.Log.AccessLog.Disabled = "error", true
	app := handlers.NewApp(context.Background(), c)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests != nil && requests.Add(-1) == 0 {
			panic(http.ErrAbortHandler)
		}
		app.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "https://"), server.Client().Transport
}

func digests(t *testing.T, directory string) map[string]string {
	t.Helper()
	path, err := layout.FromPath(directory)
	if err != nil {
		t.Fatal(err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, d := range manifest.Manifests {
		found[d.Annotations[nameAnnotation]+d.Annotations[subjectAnnotation]] = d.Digest.String()
	}
	return found
}

func TestA64_TheSameSourceGivesTheSameDigestsAgain(t *testing.T) {
	s := newSource(t)
	dir := t.TempDir()
	s.build(t, filepath.Join(dir, "one"), nil)
	// Neither another modification time of the files nor an existing older layout may change the result.
	for _, path := range []string{filepath.Join(s.payload, payload.ManifestName)} {
		if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(2, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "two", "blobs", "sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.build(t, filepath.Join(dir, "two"), nil)
	one, two := digests(t, filepath.Join(dir, "one")), digests(t, filepath.Join(dir, "two"))
	if len(one) != 6 || one["operator"] == "" || one["payload"] == "" || one["e2e"] == "" {
		t.Fatalf("the layout has %v", one)
	}
	for what, digest := range one {
		if two[what] != digest {
			t.Errorf("%s: %s, then %s", what, digest, two[what])
		}
	}
}

func TestA64_AnImageIsPushedAndPulledBackWithItsPartsAndItsSignature(t *testing.T) {
	s := newSource(t)
	by, check := keys(t, "")
	_, other := keys(t, "")
	out := filepath.Join(t.TempDir(), "image")
	s.build(t, out, by)
	host, reach := registry(t, nil)
	if err := push(t.Context(), io.Discard, out, host+"/a/wmco", "v0.1.0", reach); err != nil {
		t.Fatal(err)
	}
	for _, repository := range []string{"/a/wmco", "/a/wmco-payload", "/a/wmco-e2e"} {
		image, err := name.NewTag(host + repository + ":v0.1.0")
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(t.Context(), image, check, reach); err != nil {
			t.Error(err)
		}
		if err := verify(t.Context(), image, other, reach); !errors.Is(err, errUnsigned) {
			t.Errorf("verifying with another key: %v", err)
		}
		described, err := remote.Head(image, reach)
		if err != nil {
			t.Fatal(err)
		}
		signatureTag := image.Context().Tag("sha256-" + described.Digest.Hex + ".sig")
		if _, err := remote.Head(signatureTag, reach); err != nil {
			t.Errorf("cosign does not find the signature: %v", err)
		}
	}
	operator, err := name.NewTag(host + "/a/wmco:v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	program := readProgram(t, operator, reach)
	want, err := os.ReadFile(s.binary)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(program, want) {
		t.Errorf("the program in the image has %d bytes, want %d", len(program), len(want))
	}
	sawModules(t, operator, reach)
}

// readProgram pulls the image for arm64 and returns the operator's program in it.
func readProgram(t *testing.T, image name.Tag, reach remote.Option) []byte {
	t.Helper()
	pulled, err := remote.Image(image, reach, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := pulled.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != user || config.Architecture != "arm64" || config.Config.Entrypoint[0] != "/"+programs+operator {
		t.Errorf("the image's configuration is %+v", config.Config)
	}
	content := mutate.Extract(pulled)
	defer content.Close()
	files := map[string]int64{}
	var found []byte
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = header.Mode
		if header.Name == programs+operator {
			if found, err = io.ReadAll(reader); err != nil {
				t.Fatal(err)
			}
		}
	}
	if files[programs+operator] != 0o555 || files["payload/"+payload.ManifestName] != 0o444 {
		t.Errorf("the image has %v", files)
	}
	return found
}

// sawModules checks that the attached list of parts contains a module of a Windows program, and a program that is
// listed only by its digest.
func sawModules(t *testing.T, image name.Tag, reach remote.Option) {
	t.Helper()
	described, err := remote.Head(image, reach)
	if err != nil {
		t.Fatal(err)
	}
	attached, err := referrers(image.Context().Digest(described.Digest.String()), reach)
	if err != nil {
		t.Fatal(err)
	}
	for _, referrer := range attached {
		manifest, err := referrer.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if manifest.Layers[0].MediaType != bomType {
			continue
		}
		text, err := content(referrer, manifest.Layers[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		var bom cyclonedx.BOM
		if err := json.Unmarshal(text, &bom); err != nil {
			t.Fatal(err)
		}
		names := map[string]string{}
		for _, c := range *bom.Components {
			names[c.Name] = c.PackageURL
		}
		for _, wanted := range []string{"kubelet.exe", "csi-proxy.exe", "windows-machine-config-operator"} {
			if _, listed := names[wanted]; !listed {
				t.Errorf("the list of parts lacks %s", wanted)
			}
		}
		if url := names["github.com/spf13/cobra"]; !strings.HasPrefix(url, "pkg:golang/github.com/spf13/cobra@v") {
			t.Errorf("cobra is listed as %q", url)
		}
		return
	}
	t.Error("the image has no list of parts")
}

func TestA64_AnEncryptedKeySignsToo(t *testing.T) {
	by, check := keys(t, "correct horse")
	made, err := by.SignMessage(strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := check.VerifySignature(bytes.NewReader(made), strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	if _, err := signer("image_test.go"); err == nil || strings.Contains(err.Error(), "correct horse") {
		t.Errorf("reading a file that is not a key: %v", err)
	}
}

func TestA64_ASignatureOfAnotherImageDoesNotCount(t *testing.T) {
	s := newSource(t)
	by, check := keys(t, "")
	_, layers, err := payloadLayers(s.payload)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := sign(by, mustRepository(t), v1.Descriptor{Digest: digest(t, layers[0])})
	if err != nil {
		t.Fatal(err)
	}
	if err := signedBy(check, signed, digest(t, layers[0])); err != nil {
		t.Error(err)
	}
	if err := signedBy(check, signed, digest(t, layers[1])); !errors.Is(err, errUnsigned) {
		t.Errorf("a signature was accepted for another image: %v", err)
	}
}

func mustRepository(t *testing.T) name.Repository {
	t.Helper()
	r, err := name.NewRepository("registry.example/wmco")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func digest(t *testing.T, of v1.Layer) v1.Hash {
	t.Helper()
	d, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// If a registry refuses a push, its error doesn't name the cause. The error must name a fix, which depends on whether
// the user is logged in.
func TestARegistryThatRefusesSaysWhoMayPush(t *testing.T) {
	s := newSource(t)
	out := filepath.Join(t.TempDir(), "image")
	s.build(t, out, nil)
	for status, want := range map[int]string{
		http.StatusUnauthorized:        "log in to",
		http.StatusForbidden:           "may not push to team/wmco",
		http.StatusInsufficientStorage: "",
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				w.WriteHeader(status)
			}
		}))
		defer server.Close()
		err := push(t.Context(), io.Discard, out, strings.TrimPrefix(server.URL, "https://")+"/team/wmco", "v1",
			remote.WithTransport(server.Client().Transport))
		if err == nil || !strings.Contains(err.Error(), want) || (want == "") != !strings.Contains(err.Error(), "log") {
			t.Errorf("status %d: the error is %v", status, err)
		}
	}
}

func TestAPushThatBreaksOffIsSimplyRunAgain(t *testing.T) {
	s := newSource(t)
	out := filepath.Join(t.TempDir(), "image")
	s.build(t, out, nil)
	var requests atomic.Int64
	host, reach := registry(t, &requests)
	for n := int64(1); ; n += 3 {
		requests.Store(n)
		once := remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Steps: 1})
		err := push(t.Context(), io.Discard, out, host+"/wmco", "v1", reach, once)
		if err == nil {
			break
		}
		if n > 1000 {
			t.Fatal(err)
		}
	}
	image, err := name.NewTag(host + "/wmco:v1")
	if err != nil {
		t.Fatal(err)
	}
	if got := readProgram(t, image, reach); len(got) == 0 {
		t.Error("the pushed image does not contain the program")
	}
}
