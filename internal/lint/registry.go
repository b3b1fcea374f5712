package lint

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/windows-nodes/wmco/internal/response"
)

const (
	askTimeout = 30 * time.Second
	// maxAnswer is the maximum size of a registry's response. Manifests have a few kilobytes.
	maxAnswer = 8 << 20
)

// AskRegistry implements Images. It reads the manifest of an image from the registry in the image's name, with the
// credentials of docker login or podman login. If the manifest is for a single platform, AskRegistry also reads the
// configuration of the image, which contains the platform.
func AskRegistry(ctx context.Context, image string) (Offer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reference, err := name.ParseReference(image)
	if err != nil {
		return Offer{}, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // Go's default has this type
	transport.MaxResponseHeaderBytes = response.MaxHeader
	defer transport.CloseIdleConnections()
	described, err := remote.Get(reference, remote.WithContext(ctx),
		remote.WithTransport(response.Transport(transport, maxAnswer)),
		remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return Offer{}, fmt.Errorf("asking the registry: %w", err)
	}
	platforms, err := platformsOf(described)
	if err != nil {
		return Offer{}, fmt.Errorf("reading the registry's answer: %w", err)
	}
	return offerOf(platforms), nil
}

func platformsOf(d *remote.Descriptor) ([]*v1.Platform, error) {
	if !d.MediaType.IsIndex() {
		image, err := d.Image()
		if err != nil {
			return nil, err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		return []*v1.Platform{config.Platform()}, nil
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(d.Manifest))
	if err != nil {
		return nil, err
	}
	var all []*v1.Platform
	for _, m := range index.Manifests {
		if m.Platform != nil {
			all = append(all, m.Platform)
		}
	}
	return all, nil
}

func offerOf(platforms []*v1.Platform) Offer {
	var o Offer
	for _, p := range platforms {
		// Skip attestations, which build tools add to images. They have no operating system.
		if p.OS == "" || p.OS == "unknown" {
			continue
		}
		if !slices.Contains(o.Systems, p.OS) {
			o.Systems = append(o.Systems, p.OS)
		}
		if n := buildNumber(p.OSVersion); p.OS == string(systemWindows) && n != 0 && !slices.Contains(o.Builds, n) {
			o.Builds = append(o.Builds, n)
		}
	}
	slices.Sort(o.Systems)
	slices.Sort(o.Builds)
	return o
}
