package registry_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/windows-nodes/wmco/lab/registry"
)

func TestAnImageComesBackToWhoMayHaveIt(t *testing.T) {
	t.Parallel()
	ca := registry.NewCA(t, "registries")
	r := registry.Start(t, ca).Lock("robot:secret")
	image := r.Push(t, registry.NewImage(t), "team/app", "1")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca.PEM) {
		t.Fatal("the CA has no certificate")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	get := func(path, password string) (content string, status int) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("robot", password)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body), response.StatusCode
	}
	paths := []string{
		"/v2/team/app/manifests/1", "/v2/team/app/manifests/" + image.Digest(),
		"/v2/team/app/blobs/" + registry.Digest(image.Configuration),
		"/v2/team/app/blobs/" + registry.Digest(image.Layer),
	}
	for i, want := range [][]byte{image.Manifest, image.Manifest, image.Configuration, image.Layer} {
		if content, status := get(paths[i], "secret"); content != string(want) || status != http.StatusOK {
			t.Errorf("%s: status %d, %d bytes, want %d bytes", paths[i], status, len(content), len(want))
		}
	}
	if _, status := get(paths[0], "wrong"); status != http.StatusUnauthorized {
		t.Errorf("with a wrong password, the status is %d", status)
	}
	r.Lie(registry.Digest(image.Layer))
	if content, status := get(paths[3], "secret"); len(content) != len(image.Layer) ||
		content[1:] != string(image.Layer[1:]) || content[0] == image.Layer[0] || status != http.StatusOK {
		t.Errorf("the changed blob has the status %d and %d bytes", status, len(content))
	}
	paths = append(paths, paths[3])
	if asked := r.Asked(); !slices.Equal(asked, paths) {
		t.Errorf("the registry received the requests %q", asked)
	}
	if other := registry.NewImage(t); other.Digest() == image.Digest() {
		t.Error("two new images are equal")
	}
}
