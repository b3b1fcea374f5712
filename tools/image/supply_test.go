package main

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/windows-nodes/wmco/internal/payload"
)

const overlay = "hybrid-overlay-node.exe"

// packed creates a layer with these entries.
func packed(t *testing.T, entries ...tar.Header) v1.Layer {
	t.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, h := range entries {
		content := h.PAXRecords["WMCO.content"]
		h.PAXRecords, h.Size, h.Mode = nil, int64(len(content)), 0o755
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func regular(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"WMCO.content": content}}
}

// release pushes an image for two platforms and returns its name with its digest. The Linux image contains programs.
func release(t *testing.T, host string, reach remote.Option) string {
	t.Helper()
	linux, err := mutate.AppendLayers(empty.Image,
		packed(t, regular("root/windows/"+overlay, "old"), regular("root/gone.exe", "removed")),
		packed(t, regular("root/windows/"+overlay, "program"), regular("root/.wh.gone.exe", ""),
			tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/link", Linkname: "../root/windows/" + overlay},
			tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/circle", Linkname: "/bin/circle"},
			tar.Header{Typeflag: tar.TypeDir, Name: "bin/folder"}))
	if err != nil {
		t.Fatal(err)
	}
	both := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: empty.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: linux, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	tag, err := name.NewTag(host + "/release/ovn:4.20")
	if err != nil {
		t.Fatal(err)
	}
	if err = remote.WriteIndex(tag, both, reach); err != nil {
		t.Fatal(err)
	}
	digest, err := both.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return tag.Context().String() + "@" + digest.String()
}

func TestAProgramIsTakenOutOfTheImageThatCarriesIt(t *testing.T) {
	t.Parallel()
	host, reach := registry(t, nil)
	image := release(t, host, reach)
	for _, path := range []string{"/root/windows/" + overlay, "root/windows/" + overlay, "bin/link"} {
		o := supplyOptions{program: overlay, image: image, path: path, platform: "linux/amd64", into: t.TempDir()}
		if err := supply(t.Context(), io.Discard, o, reach); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(o.into, overlay))
		if err != nil || string(got) != "program" {
			t.Errorf("%s is %q, %v", path, got, err)
		}
		version, err := os.ReadFile(filepath.Join(o.into, overlay+".version"))
		if err != nil || !strings.HasSuffix(image, strings.TrimSpace(string(version))) {
			t.Errorf("version %q, %v", version, err)
		}
	}
}

func TestWhatIsNotTheProgramThatWasNamedIsNotTaken(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	requests.Store(-1)
	host, reach := registry(t, &requests)
	image := release(t, host, reach)
	_, digest, _ := strings.Cut(image, "@")
	tag := strings.Replace(image, "@"+digest, ":4.20", 1)
	good := supplyOptions{program: overlay, image: image, path: "root/windows/" + overlay, platform: "linux/amd64"}
	for name, c := range map[string]struct {
		change func(*supplyOptions)
		says   string
	}{
		"a program that no node has":  {func(o *supplyOptions) { o.program = "notepad.exe" }, "not the name of a part"},
		"an image without its digest": {func(o *supplyOptions) { o.image = tag }, image},
		"another path":                {func(o *supplyOptions) { o.path = "root/" + overlay }, "no such file"},
		"a file that is removed":      {func(o *supplyOptions) { o.path = "root/gone.exe" }, "no such file"},
		"a folder":                    {func(o *supplyOptions) { o.path = "bin/folder" }, "no file"},
		"a link to itself":            {func(o *supplyOptions) { o.path = "bin/circle" }, "links"},
		"another platform":            {func(o *supplyOptions) { o.platform = "windows/amd64" }, "linux/s390x, linux/amd64"},
		"another digest": {func(o *supplyOptions) {
			o.image = strings.Replace(o.image, digest, "sha256:"+strings.Repeat("a", 64), 1)
		}, "reading"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := good
			o.into = t.TempDir()
			c.change(&o)
			err := supply(t.Context(), io.Discard, o, reach)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error does not contain %q: %v", c.says, err)
			}
			if left, _ := os.ReadDir(o.into); len(left) != 0 {
				t.Errorf("after the failure, the directory contains %v", left)
			}
		})
	}
}

// corrupting is a transport that changes a bit of every blob.
type corrupting struct{ http.RoundTripper }

func (c corrupting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path, "/blobs/") {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		body[len(body)/2] ^= 1
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// A registry, or a proxy in front of it, may send wrong data. The command must refuse it, and must write no file.
func TestARegistryThatLiesSuppliesNothing(t *testing.T) {
	t.Parallel()
	host, honest := serve(t, nil)
	image := release(t, host, remote.WithTransport(honest))
	o := supplyOptions{program: overlay, image: image, path: "root/windows/" + overlay, platform: "linux/amd64",
		into: t.TempDir()}
	if err := supply(t.Context(), io.Discard, o, remote.WithTransport(corrupting{honest})); err == nil {
		t.Error("wrong data was accepted")
	}
	if left, _ := os.ReadDir(o.into); len(left) != 0 {
		t.Errorf("after the failure, the directory contains %v", left)
	}
}

func TestAnImageWithoutItsProgramsIsNotBuiltByAccident(t *testing.T) {
	t.Parallel()
	lacks := payload.Manifest{Missing: []payload.Missing{{Name: overlay, Feature: "pod network"}}}
	if err := (buildOptions{}).complete(lacks); err == nil || !strings.Contains(err.Error(), overlay) {
		t.Errorf("the error is %v", err)
	}
	if err := (buildOptions{incomplete: true}).complete(lacks); err != nil {
		t.Error(err)
	}
	if err := (buildOptions{}).complete(payload.Manifest{}); err != nil {
		t.Error(err)
	}
}

func TestThePullSecretsEntryOfTheRepositoryCounts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	content := `{"auths":{"a.example":{"auth":"cmVnaXN0cnk6cA=="},"a.example/team":{"auth":"dGVhbTpw"}}}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	secret, err := readPullSecret(file)
	if err != nil {
		t.Fatal(err)
	}
	for repository, user := range map[string]string{"a.example/team/x": "team", "a.example/y": "registry", "b.example/y": ""} {
		of, err := name.NewRepository(repository)
		if err != nil {
			t.Fatal(err)
		}
		by, err := secret.Resolve(of)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := by.Authorization()
		if err != nil || entry.Username != user {
			t.Errorf("for %s, the user is %q, %v", repository, entry.Username, err)
		}
	}
}
