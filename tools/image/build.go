package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/windows-nodes/wmco/internal/payload"
)

type buildOptions struct {
	root, payload, out, version, revision, repository, key string
	platforms                                              []string
	incomplete                                             bool
}

// build makes the images and writes the layout.
func build(ctx context.Context, out io.Writer, o buildOptions) error {
	var key signature.Signer
	var err error
	if o.key != "" {
		if key, err = signer(o.key); err != nil {
			return err
		}
	}
	scratch, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	_, _ = fmt.Fprintf(out, "packing %s\n", o.payload)
	manifest, layers, err := payloadLayers(o.payload)
	if err != nil {
		return err
	}
	if err := o.complete(manifest); err != nil {
		return err
	}
	parts := payloadParts(o.payload, manifest)
	carried, err := o.programImages(ctx, out, scratch, program{image: "payload", name: copier, source: "./cmd/copypayload",
		labels: labels{"Windows Machine Config Operator: payload",
			"The programs of Windows nodes, and a program that copies them for the operator.", o.version, o.revision},
		beside: layers, parts: slices.Clone(parts)}, key)
	if err != nil {
		return err
	}
	runs, err := o.programImages(ctx, out, scratch, program{image: "operator", name: operator, source: "./cmd/wmco",
		labels: labels{"Windows Machine Config Operator",
			"Turns Windows Server machines into nodes, and keeps them that way.", o.version, o.revision},
		beside: layers, parts: slices.Clone(parts)}, key)
	if err != nil {
		return err
	}
	checks, err := o.programImages(ctx, out, scratch, program{image: "e2e", name: e2e, source: "./cmd/wmco-e2e",
		labels: labels{"Windows Machine Config Operator: checks",
			"Tries whether Windows hosts become nodes on a cluster, and leave clean.", o.version, o.revision}}, key)
	if err != nil {
		return err
	}
	if err := write(o.out, runs, carried, checks); err != nil {
		return err
	}
	return say(out, o, runs, carried, checks)
}

// program is the program of an image.
type program struct {
	// image is the image's name in the layout, name the program's name, and source its Go package.
	image, name, source string
	labels              labels
	// beside holds the image's other layers. parts are the programs in them.
	beside []v1.Layer
	parts  []part
}

// programImages builds an image of a program for each platform, and joins the images to an index.
func (o buildOptions) programImages(ctx context.Context, out io.Writer, scratch string, p program,
	key signature.Signer) (made, error) {
	images, order := map[string]v1.Image{}, make([]v1.Platform, 0, len(o.platforms))
	for _, text := range o.platforms {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			return made{}, err
		}
		_, _ = fmt.Fprintf(out, "building %s for %s\n", p.name, text)
		binary := filepath.Join(scratch, p.name+"-"+strings.ReplaceAll(text, "/", "-"))
		if err = o.compile(ctx, *platform, p.source, binary); err != nil {
			return made{}, err
		}
		p.parts = append(p.parts, part{p.name + " " + text, o.version, binary})
		if images[platform.String()], err = programImage(*platform, p.name, binary, p.labels, p.beside); err != nil {
			return made{}, err
		}
		order = append(order, *platform)
	}
	repository, err := name.NewRepository(o.repository + suffixes[p.image])
	if err != nil {
		return made{}, err
	}
	return finish(p.image, index(images, order), o.version, p.parts, repository, key)
}

// complete returns an error if the payload lacks programs that you must supply, unless the option incomplete is
// set.
func (o buildOptions) complete(manifest payload.Manifest) error {
	if len(manifest.Missing) == 0 || o.incomplete {
		return nil
	}
	var lines []string
	for _, m := range manifest.Missing {
		lines = append(lines, fmt.Sprintf("  %s: off without it: %s", m.Name, m.Feature))
	}
	return fmt.Errorf("the payload lacks\n%s\nSupply them (image supply --help, docs/payload.md), or build without them: "+
		"--incomplete, make image INCOMPLETE=1", strings.Join(lines, "\n"))
}

// compile builds a program reproducibly: the same source gives the same bytes.
func (o buildOptions) compile(ctx context.Context, platform v1.Platform, source, to string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-gcflags=all=-dwarf=false", // as in the Makefile, so that the build cache is used
		"-ldflags=-s -w -X github.com/windows-nodes/wmco/internal/version.version="+o.version,
		"-o", to, source)
	command.Dir = o.root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOFLAGS=", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s for %s: %w\n%s", source, platform, err, output)
	}
	return nil
}

// say prints the digests of the images.
func say(out io.Writer, o buildOptions, all ...made) error {
	for _, m := range all {
		digest, err := m.image.(interface{ Digest() (v1.Hash, error) }).Digest()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%-8s  %s\n", m.name, digest)
	}
	if o.key == "" {
		_, _ = fmt.Fprintln(out, "not signed: no key was given")
	}
	_, err := fmt.Fprintf(out, "written to %s\n", o.out)
	return err
}
