package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/windows-nodes/wmco/internal/payload"
)

const (
	maxProgram = 512 << 20 // bytes of a supplied program
	maxImage   = 8 << 30   // bytes of the image that contains it
	maxLinks   = 8         // maximum number of links to follow to the program
)

// supplyOptions name a program and the image that contains it.
type supplyOptions struct {
	program        string // the program's name in the payload
	image          string // the image with its digest
	path, platform string // the program's path in the image, and the image's platform
	into, version  string
}

// supply copies a program from an image to a directory for `make payload SUPPLIED=`. The image must be named by its
// digest, and all data from the registry is checked against this digest.
func supply(ctx context.Context, out io.Writer, o supplyOptions, options ...remote.Option) error {
	if _, known := payload.PartNamed(o.program); !known {
		return fmt.Errorf("%s is not the name of a part of the payload, see docs/payload.md", o.program)
	}
	options = append(options, remote.WithContext(ctx))
	reference, err := name.NewDigest(o.image)
	if err != nil {
		return unpinned(o.image, err, options)
	}
	platform, err := v1.ParsePlatform(o.platform)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "looking for %s in %s\n", o.path, reference)
	image, err := pick(reference, *platform, options)
	if err != nil {
		return err
	}
	if err = os.MkdirAll(o.into, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(o.into, ".supply-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	target := filepath.Join(o.into, o.program)
	if image, err = download(image, scratch); err != nil {
		return fmt.Errorf("downloading %s: %w", reference, err)
	}
	if err = extract(image, o.path, target); err != nil {
		return fmt.Errorf("taking %s out of %s: %w", o.path, reference, err)
	}
	if o.version == "" {
		o.version = reference.DigestStr()
	}
	if err = os.WriteFile(target+".version", []byte(o.version+"\n"), 0o644); err != nil { //nolint:gosec // no secret
		return err
	}
	_, err = fmt.Fprintf(out, "wrote %s, version %s\n", target, o.version)
	return err
}

// unpinned returns an error for an image without a digest. The error contains the current digest.
func unpinned(image string, cause error, options []remote.Option) error {
	tag, err := name.NewTag(image)
	if err != nil {
		return fmt.Errorf("reading the name of the image: %w", errors.Join(cause, err))
	}
	now, err := remote.Head(tag, options...)
	if err != nil {
		return fmt.Errorf("%s is named without its digest, and asking the registry for it failed: %w", image, err)
	}
	return fmt.Errorf("%s is named without its digest; now it is %s@%s", image, tag.Context(), now.Digest)
}

// pick returns the image. If the digest names an index, it returns the index's image for the platform.
func pick(reference name.Digest, platform v1.Platform, options []remote.Option) (v1.Image, error) {
	found, err := remote.Get(reference, options...)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", reference, err)
	}
	if found.MediaType != types.OCIImageIndex && found.MediaType != types.DockerManifestList {
		return found.Image()
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var has []string
	for _, m := range manifest.Manifests {
		if m.Platform == nil {
			continue
		}
		if m.Platform.Satisfies(platform) {
			return index.Image(m.Digest)
		}
		has = append(has, m.Platform.String())
	}
	return nil, fmt.Errorf("%s is not for %s but for %s: choose one with --platform", reference, platform.String(),
		strings.Join(has, ", "))
}

// download copies an image to disk and returns the copy. A layer's digest is verified after its last byte, so
// the whole layer is downloaded before its content is used.
func download(image v1.Image, directory string) (v1.Image, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	size := int64(0)
	for _, layer := range manifest.Layers {
		if size += layer.Size; layer.Size < 0 || size > maxImage {
			return nil, fmt.Errorf("it is larger than %d bytes", int64(maxImage))
		}
	}
	disk, err := layout.Write(directory, empty.Index)
	if err != nil {
		return nil, err
	}
	if err = disk.AppendImage(image); err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	return disk.Image(digest)
}

// extract writes one file of an image to target. It follows links within the image.
func extract(image v1.Image, file, target string) error {
	for range maxLinks {
		next, err := extractOnce(image, clean(file), target)
		if err != nil || next == "" {
			return err
		}
		file = next
	}
	return fmt.Errorf("more than %d links lead to it", maxLinks)
}

// clean returns a path in the form that a tar uses.
func clean(file string) string {
	return strings.TrimPrefix(path.Join("/", filepath.ToSlash(file)), "/")
}

// extractOnce writes a file. If the file is a link, it returns the link's target instead.
func extractOnce(image v1.Image, file, target string) (next string, err error) {
	flat := mutate.Extract(image)
	defer func() { err = errors.Join(err, flat.Close()) }()
	files := tar.NewReader(flat)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return "", errors.New("there is no such file")
		}
		if err != nil {
			return "", err
		}
		if clean(header.Name) != file {
			continue
		}
		switch header.Typeflag {
		case tar.TypeReg:
			return "", writeProgram(target, files, header.Size)
		case tar.TypeLink:
			return header.Linkname, nil
		case tar.TypeSymlink:
			if path.IsAbs(header.Linkname) {
				return header.Linkname, nil
			}
			return path.Join(path.Dir(file), header.Linkname), nil
		}
		return "", errors.New("it is no file")
	}
}

// writeProgram writes a file completely or not at all.
func writeProgram(target string, from io.Reader, size int64) error {
	if size > maxProgram {
		return fmt.Errorf("it has %d bytes, and %d are allowed", size, maxProgram)
	}
	file, err := os.CreateTemp(filepath.Dir(target), ".supply-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // after the rename, this does nothing
	_, err = io.CopyN(file, from, size)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), target)
}

// pullSecret contains the credentials of a file such as OpenShift's pull secret.
type pullSecret struct{ *configfile.ConfigFile }

func readPullSecret(file string) (pullSecret, error) {
	f, err := os.Open(file)
	if err != nil {
		return pullSecret{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	c, err := config.LoadFromReader(io.LimitReader(f, 1<<20))
	if err != nil {
		return pullSecret{}, fmt.Errorf("reading the pull secret %s: %w", file, err)
	}
	return pullSecret{c}, nil
}

// Resolve returns the credentials for a repository, or else for its registry.
func (p pullSecret) Resolve(of authn.Resource) (authn.Authenticator, error) {
	for key := of.String(); ; key = path.Dir(key) {
		if entry, ok := p.AuthConfigs[key]; ok {
			return authn.FromConfig(authn.AuthConfig{Username: entry.Username, Password: entry.Password, Auth: entry.Auth,
				IdentityToken: entry.IdentityToken, RegistryToken: entry.RegistryToken}), nil
		}
		if key == of.RegistryStr() || key == "." {
			return authn.Anonymous, nil
		}
	}
}
