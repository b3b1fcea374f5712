package pull_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// pauseVariants returns the Windows builds in the indices of pause images. pause:3.10.2 of registry.k8s.io also has a
// variant for 26100.
func pauseVariants() map[string][]string {
	return map[string][]string{
		"mcr.microsoft.com/oss/kubernetes/pause:3.9": {"10.0.17763", "10.0.20348"},
	}
}

// Every supported build of Windows must be able to run the pause image. For Server 2025, the image has no variant of
// the host's build. containerd then uses the variant of Server 2022, because a release can run images of the previous
// release.
func TestThePauseImageRunsOnEverySupportedBuildByContainerdsRule(t *testing.T) {
	t.Parallel()
	rendered, err := os.ReadFile("../../../internal/blueprint/testdata/none.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`sandbox = '([^']+)'`).FindSubmatch(rendered)
	if found == nil {
		t.Fatal("containerd's configuration names no pause image")
	}
	variants := pauseVariants()[string(found[1])]
	if len(variants) == 0 {
		t.Fatalf("the variants of %s are not known: read its index, and add them", found[1])
	}
	for _, build := range contract.WindowsBuilds() {
		host := platforms.NewMatcher(ocispec.Platform{OS: "windows", Architecture: "amd64",
			OSVersion: build.Label() + ".1"})
		if !slices.ContainsFunc(variants, func(version string) bool {
			return host.Match(ocispec.Platform{OS: "windows", Architecture: "amd64", OSVersion: version})
		}) {
			t.Errorf("on %s, no variant of the pause image can run: %q", build.Product, variants)
		}
	}
}
