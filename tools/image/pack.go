package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"sigs.k8s.io/yaml"
)

// filesPlatform is the platform of an image that contains only files.
const filesPlatform = "linux/amd64"

// directories describes the images that consist of a directory: title, description, and the labels that OLM reads.
var directories = map[string]struct { //nolint:gochecknoglobals // a table
	title, description string
	labels             func(directory string) (map[string]string, error)
}{
	"bundle": {"Windows Machine Config Operator: bundle", "What OLM installs.", bundleLabels},
	"catalog": {"Windows Machine Config Operator: catalog", "A catalog of OLM's with the operator in it.",
		func(string) (map[string]string, error) {
			return map[string]string{"operators.operatorframework.io.index.configs.v1": "/configs"}, nil
		}},
}

type packOptions struct{ name, directory, out, version, revision, repository, key string }

// pack creates an image of a directory and writes it as a layout.
func pack(out io.Writer, o packOptions) error {
	about, known := directories[o.name]
	if !known {
		return fmt.Errorf("%q is neither bundle nor catalog", o.name)
	}
	repository, err := name.NewRepository(o.repository + suffixes[o.name])
	if err != nil {
		return err
	}
	var key signature.Signer
	if o.key != "" {
		if key, err = signer(o.key); err != nil {
			return err
		}
	}
	files, err := tree(o.directory)
	if err != nil {
		return fmt.Errorf("reading the %s: %w", o.name, err)
	}
	top, err := layer(files...)
	if err != nil {
		return err
	}
	all := labels{about.title, about.description, o.version, o.revision}.all()
	own, err := about.labels(o.directory)
	if err != nil {
		return err
	}
	maps.Copy(all, own)
	platform, err := v1.ParsePlatform(filesPlatform)
	if err != nil {
		return err
	}
	image, err := assemble(*platform, v1.Config{Labels: all}, []v1.Layer{top})
	if err != nil {
		return err
	}
	whole, err := finish(o.name, image, o.version, nil, repository, key)
	if err != nil {
		return err
	}
	if err = write(o.out, whole); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s@%s\n", repository, digest)
	return err
}

// tree lists all files of a directory.
func tree(directory string) ([]file, error) {
	var all []file
	err := fs.WalkDir(os.DirFS(directory), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := fromDisk(filepath.Join(directory, path), path, 0o444)
		all = append(all, f)
		return err
	})
	return all, err
}

// bundleLabels returns the annotations of a bundle. The bundle's image has them as labels.
func bundleLabels(directory string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(directory, "metadata", "annotations.yaml"))
	if err != nil {
		return nil, err
	}
	var said struct{ Annotations map[string]string }
	if err = yaml.Unmarshal(data, &said); err != nil {
		return nil, fmt.Errorf("reading the bundle's annotations: %w", err)
	}
	return said.Annotations, nil
}

// nameByDigest returns repository@digest for an image in a layout. It returns an error if the image has another
// version.
func nameByDigest(directory, image, version, repository string) (string, error) {
	manifest, all, err := open(directory)
	if err != nil {
		return "", err
	}
	for _, d := range manifest.Manifests {
		if d.Annotations[nameAnnotation] != image {
			continue
		}
		found, err := versionOf(all, d)
		if err != nil {
			return "", fmt.Errorf("reading the image %s: %w", image, err)
		}
		if found != version {
			return "", fmt.Errorf("the image %s in %s is of version %s, not %s: make image first", image, directory, found, version)
		}
		return repository + suffixes[image] + "@" + d.Digest.String(), nil
	}
	return "", fmt.Errorf("the layout %s has no image %s", directory, image)
}

// versionOf returns the version in the labels of an image, or of the first image of an index.
func versionOf(all v1.ImageIndex, d v1.Descriptor) (string, error) {
	if d.MediaType.IsIndex() {
		index, err := all.ImageIndex(d.Digest)
		if err != nil {
			return "", err
		}
		manifest, err := index.IndexManifest()
		if err != nil || len(manifest.Manifests) == 0 {
			return "", errors.Join(errors.New("it is an empty index"), err)
		}
		return versionOf(index, manifest.Manifests[0])
	}
	image, err := all.Image(d.Digest)
	if err != nil {
		return "", err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return "", err
	}
	return config.Config.Labels["org.opencontainers.image.version"], nil
}
