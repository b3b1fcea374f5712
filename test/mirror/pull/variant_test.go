package pull_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	transferimage "github.com/containerd/containerd/v2/core/transfer/image"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// threeBuilds is what a host with Server 2025 can run, as an index lists it.
func threeBuilds() []string { return []string{"10.0.20348.4052", "10.0.25398.1732", "10.0.26100.4652"} }

// newest orders matching variants as containerd's default platform on Windows does
// (windowsMatchComparer in its package platforms, which compiles on Windows only).
type newest struct{ platforms.Matcher }

func (n newest) Less(a, b ocispec.Platform) bool { return cmp.Compare(a.OSVersion, b.OSVersion) > 0 }

// The transfer service, which containerd's CRI plugin uses by default since 2.1, sets no limit of
// variants: on Server 2025 each of the three would be pulled and unpacked.
func TestServer2025PullsOneOfThreeVariants(t *testing.T) {
	t.Parallel()
	rendered, err := os.ReadFile("../../../internal/blueprint/testdata/none.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(rendered, []byte("use_local_image_pull = true\n")) {
		t.Error("containerd is left to its transfer service")
	}
	store, err := local.NewLabeledStore(t.TempDir(), unlabeled{})
	if err != nil {
		t.Fatal(err)
	}
	index := writeIndex(t, store, threeBuilds())
	host := ocispec.Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.26100"}
	children := images.ChildrenHandler(store)

	// pullImageWithTransferService of containerd's internal/cri/server/images.
	transfer := transferimage.NewStore("registry.example/app:1", transferimage.WithPlatforms(host))
	if all := variants(t, transfer.ImageFilter(children, store), index); len(all) != len(threeBuilds()) {
		t.Errorf("the transfer service pulls %q: use_local_image_pull may no longer be needed", all)
	}
	// fetch of containerd's client, which pullImageWithLocalPull calls with a limit of 1.
	ours := newest{platforms.NewMatcher(host)}
	limited := images.LimitManifests(images.FilterPlatforms(children, ours), ours, 1)
	if one := variants(t, limited, index); !slices.Equal(one, threeBuilds()[2:]) {
		t.Errorf("it pulls %q, want the variant of the host's build", one)
	}
}

// unlabeled accepts and ignores labels. containerd uses them to keep the parts of an image together.
type unlabeled struct{}

func (unlabeled) Get(digest.Digest) (map[string]string, error)                       { return nil, nil }
func (unlabeled) Set(digest.Digest, map[string]string) error                         { return nil }
func (unlabeled) Update(digest.Digest, map[string]string) (map[string]string, error) { return nil, nil }

// variants are the builds of the manifests that a handler goes on with.
func variants(t *testing.T, handler images.HandlerFunc, index ocispec.Descriptor) (builds []string) {
	t.Helper()
	manifests, err := handler(t.Context(), index)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests {
		builds = append(builds, m.Platform.OSVersion)
	}
	slices.Sort(builds)
	return builds
}

func writeIndex(t *testing.T, store content.Store, builds []string) ocispec.Descriptor {
	t.Helper()
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	index.SchemaVersion = 2
	for _, build := range builds {
		manifest := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest,
			Annotations: map[string]string{"build": build}}
		manifest.SchemaVersion = 2
		descriptor := write(t, store, ocispec.MediaTypeImageManifest, manifest)
		descriptor.Platform = &ocispec.Platform{OS: "windows", Architecture: "amd64", OSVersion: build}
		index.Manifests = append(index.Manifests, descriptor)
	}
	return write(t, store, ocispec.MediaTypeImageIndex, index)
}

func write(t *testing.T, store content.Store, mediaType string, object any) ocispec.Descriptor {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	descriptor := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	if err := content.WriteBlob(context.WithoutCancel(t.Context()), store, descriptor.Digest.String(),
		bytes.NewReader(text), descriptor); err != nil {
		t.Fatal(err)
	}
	return descriptor
}
