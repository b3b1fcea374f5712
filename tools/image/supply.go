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
	maxImage   = 8 << 30   // bytes of the image that carries it
	maxLinks   = 8         // symbolic links that are followed to it
)

// supplyOptions say which program is taken out of which image.
type supplyOptions struct {
	program        string // its name in the payload
	image          string // with its digest
	path, platform string // where it is in the image, and in which of its platforms
	into, version  string
}

// supply takes a program out of an image and puts it into a directory for `make payload SUPPLIED=`.
// The image is named by its digest, against which everything that the registry sends is checked.
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

// unpinned refuses an image without a digest, and says what it is now.
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

// pick is the image for a platform, where the digest names an index of several.
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
	return nil, fmt.Errorf("%s is not for %s but for %s: say which with --platform", reference, platform.String(),
		strings.Join(has, ", "))
}

// download is the image on disk. A digest is checked at the end of a layer only, so nothing is read from
// one that is still on its way.
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

// extract writes one file of an image to target. Links are followed within the image.
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

// clean is a path of an image as a tar has it.
func clean(file string) string {
	return strings.TrimPrefix(path.Join("/", filepath.ToSlash(file)), "/")
}

// extractOnce writes a file, or says which one the link at its place leads to.
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

// writeProgram puts a file at its place whole or not at all.
func writeProgram(target string, from io.Reader, size int64) error {
	if size > maxProgram {
		return fmt.Errorf("it has %d bytes, and %d are allowed", size, maxProgram)
	}
	file, err := os.CreateTemp(filepath.Dir(target), ".supply-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // there is nothing to remove after the rename
	_, err = io.CopyN(file, from, size)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), target)
}

// pullSecret has the credentials of a file such as OpenShift's pull secret.
type pullSecret struct{ *configfile.ConfigFile }

func readPullSecret(file string) (pullSecret, error) {
	f, err := os.Open(file)
	if err != nil {
		return pullSecret{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	c, err := config.LoadFromReader(io.LimitReader(f, 1<<20))
	if err != nil {
		return pullSecret{}, fmt.Errorf("reading the pull secret %s: %w", file, err)
	}
	return pullSecret{c}, nil
}

// Resolve is the entry for a repository, or else for its registry.
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
