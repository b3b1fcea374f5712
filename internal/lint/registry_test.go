package lint_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/windows-nodes/wmco/internal/lint"
	"github.com/windows-nodes/wmco/internal/response"
)

func platform(system, version string) *v1.Platform {
	return &v1.Platform{OS: system, Architecture: "amd64", OSVersion: version}
}

func image(t *testing.T, p *v1.Platform) v1.Image {
	t.Helper()
	made, err := mutate.ConfigFile(empty.Image,
		&v1.ConfigFile{OS: p.OS, Architecture: p.Architecture, OSVersion: p.OSVersion})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestA74_TheRegistryIsAskedForWhichBuildsAnImageIs(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	one, err := name.ParseReference(host + "/one:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(one, image(t, platform("windows", "10.0.20348.1006"))); err != nil {
		t.Fatal(err)
	}
	many, err := name.ParseReference(host + "/many:1")
	if err != nil {
		t.Fatal(err)
	}
	index := empty.Index
	joined := v1.ImageIndex(index)
	for _, p := range []*v1.Platform{platform("windows", "10.0.26100.1"), platform("linux", ""),
		platform("windows", "10.0.17763.5"), platform("unknown", "")} {
		joined = mutate.AppendManifests(joined,
			mutate.IndexAddendum{Add: image(t, p), Descriptor: v1.Descriptor{Platform: p}})
	}
	if err := remote.WriteIndex(many, joined); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]lint.Offer{
		"/one:1":  {Systems: []string{"windows"}, Builds: []int{20348}},
		"/many:1": {Systems: []string{"linux", "windows"}, Builds: []int{17763, 26100}},
	} {
		got, err := lint.AskRegistry(t.Context(), host+what)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// If the registry doesn't answer, nothing is known about the image. So this is a warning and not an error.
func TestA74_ARegistryThatDoesNotAnswerIsAWarning(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	templates, err := read("f", "kind: Pod\nmetadata: {name: p}\nspec: {os: {name: windows}, "+
		"containers: [{name: c, image: "+host+"/x:1}]}")
	if err != nil {
		t.Fatal(err)
	}
	findings := ofImages(t, templates, mixed(), lint.AskRegistry)
	if len(findings) != 1 || findings[0].Severity != lint.Warning || findings[0].Rule != "image" {
		t.Errorf("found %+v", findings)
	}
}

// A truncated response could have a different meaning than the whole response.
func TestA74_AnAnswerOfARegistryThatIsTooLongIsNotCutInSilence(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", string(types.OCIImageIndex))
		_, _ = io.WriteString(w, `{"schemaVersion":2,"manifests":[]}`+strings.Repeat(" ", 9<<20))
	}))
	t.Cleanup(server.Close)
	_, err := lint.AskRegistry(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/endless:1")
	if !response.IsTooLarge(err) {
		t.Errorf("the error is %v", err)
	}
}

func TestHeadersOfARegistryWithoutEndAreRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 100_000))
		w.Header().Set("Content-Type", string(types.OCIImageIndex))
		_, _ = io.WriteString(w, `{"schemaVersion":2,"manifests":[]}`)
	}))
	t.Cleanup(server.Close)
	_, err := lint.AskRegistry(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/endless:1")
	if err == nil || !strings.Contains(err.Error(), "response headers exceeded") {
		t.Errorf("the error is %v", err)
	}
}
