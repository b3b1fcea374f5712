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

// threeBuilds returns the variants in an index that a host with Server 2025 can run.
func threeBuilds() []string { return []string{"10.0.20348.4052", "10.0.25398.1732", "10.0.26100.4652"} }

// newest orders matching variants as containerd's default platform on Windows does. The original is
// windowsMatchComparer in containerd's package platforms, which compiles only on Windows.
type newest struct{ platforms.Matcher }

func (n newest) Less(a, b ocispec.Platform) bool { return cmp.Compare(a.OSVersion, b.OSVersion) > 0 }

// Since 2.1, containerd's CRI plugin uses the transfer service by default. This service has no limit of variants, so a
// host with Server 2025 would pull and unpack all three. The node's configuration must select the local pull, which
// pulls one variant.
func TestServer2025PullsOneOfThreeVariants(t *testing.T) {
	t.Parallel()
	rendered, err := os.ReadFile("../../../internal/blueprint/testdata/none.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(rendered, []byte("use_local_image_pull = true\n")) {
		t.Error("the configuration does not set use_local_image_pull, so containerd uses its transfer service")
	}
	store, err := local.NewLabeledStore(t.TempDir(), unlabeled{})
	if err != nil {
		t.Fatal(err)
	}
	index := writeIndex(t, store, threeBuilds())
	host := ocispec.Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.26100"}
	children := images.ChildrenHandler(store)

	// This code follows pullImageWithTransferService in containerd's internal/cri/server/images.
	transfer := transferimage.NewStore("registry.example/app:1", transferimage.WithPlatforms(host))
	if all := variants(t, transfer.ImageFilter(children, store), index); len(all) != len(threeBuilds()) {
		t.Errorf("the transfer service pulls %q: use_local_image_pull may no longer be needed", all)
	}
	// This code follows fetch in containerd's client. pullImageWithLocalPull calls it with a limit of 1.
	ours := newest{platforms.NewMatcher(host)}
	limited := images.LimitManifests(images.FilterPlatforms(children, ours), ours, 1)
	if one := variants(t, limited, index); !slices.Equal(one, threeBuilds()[2:]) {
		t.Errorf("the local pull pulls %q, want the variant of the host's build", one)
	}
}

// unlabeled ignores labels. containerd uses labels to keep the parts of an image together.
type unlabeled struct{}

func (unlabeled) Get(digest.Digest) (map[string]string, error)                       { return nil, nil }
func (unlabeled) Set(digest.Digest, map[string]string) error                         { return nil }
func (unlabeled) Update(digest.Digest, map[string]string) (map[string]string, error) { return nil, nil }

// variants returns the builds of the manifests that a handler continues with.
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
