package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/windows-nodes/wmco/internal/payload"
)

// releaseOptions are the paths of a release's parts. changes is a file with a line for each change, and notes is
// docs/release-notes.md; both may be empty. source is the project's URL on GitHub.
type releaseOptions struct {
	images, bundle, catalog, chart, payload, plugin, sonobuoy, repository, changes, notes, source, out, version string
	extra                                                                                                       []string
}

// makeRelease collects all published files of a version in one directory: archives of the images, the chart, the
// plugins of kubectl and Sonobuoy, lists of parts, notes, and the digests of all these files. The old directory
// stays until the new one is complete. The same parts give the same files.
func makeRelease(out io.Writer, o releaseOptions) error {
	scratch, err := os.MkdirTemp(parentOf(o.out), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	var published []string
	for _, from := range []string{o.images, o.bundle, o.catalog} {
		named, err := collect(scratch, from)
		if err != nil {
			return err
		}
		published = append(published, named...)
	}
	for _, one := range append([]string{o.chart}, o.extra...) {
		if err = copyFile(one, filepath.Join(scratch, filepath.Base(one))); err != nil {
			return fmt.Errorf("copying what `make chart` makes: %w", err)
		}
	}
	if err = collectPlugin(scratch, o.plugin, o.version); err != nil {
		return fmt.Errorf("collecting the plugin of kubectl, which `make plugin` makes: %w", err)
	}
	if err = o.collectSonobuoy(scratch); err != nil {
		return fmt.Errorf("making the plugin for Sonobuoy: %w", err)
	}
	if err = o.nameImages(scratch, published); err != nil {
		return fmt.Errorf("listing the images: %w", err)
	}
	notes, err := o.describe(published)
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(scratch, "NOTES.md"), notes, 0o644); err != nil { //nolint:gosec // published
		return err
	}
	sums, err := checksums(scratch)
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(scratch, "sha256sums.txt"), sums, 0o644); err != nil { //nolint:gosec // published
		return err
	}
	if err = os.RemoveAll(o.out); err != nil {
		return err
	}
	if err = errors.Join(os.Chmod(scratch, 0o755), os.Rename(scratch, o.out)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%swritten to %s\n", sums, o.out)
	return err
}

// collect writes a layout as an archive, and next to it the list of parts of each image. It returns the images'
// names with their digests.
func collect(to, from string) ([]string, error) {
	manifest, all, err := open(from)
	if err != nil {
		return nil, err
	}
	var published, names []string
	for _, image := range manifest.Manifests {
		as := image.Annotations[nameAnnotation]
		if as == "" {
			continue
		}
		names = append(names, as)
		published = append(published, as+" "+image.Digest.String())
		for _, referrer := range manifest.Manifests {
			if referrer.Annotations[subjectAnnotation] != image.Digest.String() {
				continue
			}
			list, err := partsOf(all, referrer)
			if err != nil {
				return nil, fmt.Errorf("reading what is attached to %s: %w", as, err)
			}
			if list == nil {
				continue
			}
			if err = os.WriteFile(filepath.Join(to, as+".cdx.json"), list, 0o644); err != nil { //nolint:gosec // published
				return nil, err
			}
		}
	}
	files, err := tree(from)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	archive, err := os.Create(filepath.Join(to, "image-"+strings.Join(names, "-")+".oci.tar"))
	if err != nil {
		return nil, err
	}
	return published, errors.Join(writeTar(archive, files), archive.Close())
}

// sonobuoyImage matches the line with the image in the plugin for Sonobuoy.
var sonobuoyImage = regexp.MustCompile(`(?m)^(  image: )\S+$`)

// collectSonobuoy writes the plugin for Sonobuoy, with the digest of this version's image.
func (o releaseOptions) collectSonobuoy(to string) error {
	named, err := nameByDigest(o.images, "e2e", o.version, o.repository)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(o.sonobuoy)
	if err != nil {
		return err
	}
	if found := len(sonobuoyImage.FindAll(text, -1)); found != 1 {
		return fmt.Errorf("%s names %d images", o.sonobuoy, found)
	}
	text = sonobuoyImage.ReplaceAll(text, []byte("${1}"+named))
	return os.WriteFile(filepath.Join(to, filepath.Base(o.sonobuoy)), text, 0o644) //nolint:gosec // published
}

// partsOf reads the list of parts in a referrer. It returns nil for other referrers.
func partsOf(all v1.ImageIndex, referrer v1.Descriptor) ([]byte, error) {
	attached, err := all.Image(referrer.Digest)
	if err != nil {
		return nil, err
	}
	manifest, err := attached.Manifest()
	if err != nil || manifest.Config.MediaType != bomType || len(manifest.Layers) != 1 {
		return nil, err
	}
	return content(attached, manifest.Layers[0].Digest)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644) //nolint:gosec // published
}

// nameImages writes images.txt: a line for each image with its digest and its repository, in the format of
// sha256sum. A workflow uses it to attest the images.
func (o releaseOptions) nameImages(to string, published []string) error {
	var text strings.Builder
	for _, image := range published {
		as, digest, _ := strings.Cut(image, " ")
		suffix, known := suffixes[as]
		if !known {
			return fmt.Errorf("image %s has no repository", as)
		}
		fmt.Fprintf(&text, "%s  %s%s\n", strings.TrimPrefix(digest, "sha256:"), o.repository, suffix)
	}
	return os.WriteFile(filepath.Join(to, "images.txt"), []byte(text.String()), 0o644) //nolint:gosec // published
}

var (
	// pageLink matches a link to another page in docs/ or below it.
	pageLink = regexp.MustCompile(`\]\(([a-z0-9/-]+\.md)`)
	// section matches the heading of a release in docs/release-notes.md.
	section = regexp.MustCompile(`(?m)^## (.+)$`)
)

// changelog returns the version's section of docs/release-notes.md, with links that work outside docs/. It is empty
// if the version has no section, such as in a fork.
func (o releaseOptions) changelog() (string, error) {
	if o.notes == "" {
		return "", nil
	}
	page, err := os.ReadFile(o.notes)
	if err != nil {
		return "", err
	}
	headings := section.FindAllSubmatchIndex(page, -1)
	for i, at := range headings {
		if string(page[at[2]:at[3]]) != o.version {
			continue
		}
		end := len(page)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		text, _, _ := strings.Cut(string(page[at[1]:end]), "\nNext: ")
		return pageLink.ReplaceAllString(strings.TrimSpace(text), "]("+o.source+"/blob/v"+o.version+"/docs/$1") + "\n\n", nil
	}
	return "", nil
}

// maxChanges keeps the notes of a first release below the 125,000 characters that GitHub accepts.
const maxChanges = 500

// describe returns the notes: the content of the release, and the changes.
func (o releaseOptions) describe(published []string) ([]byte, error) {
	opened, err := payload.OpenDir(o.payload)
	if err != nil {
		return nil, fmt.Errorf("reading the payload, which `make payload` makes: %w", err)
	}
	changed, err := o.changelog()
	if err != nil {
		return nil, fmt.Errorf("reading the release notes: %w", err)
	}
	text := &bytes.Buffer{}
	fmt.Fprintf(text, "# wmco %s\n\n%sInstall it, or upgrade to it, as docs/install.md says:\n\n"+
		"    helm install wmco oci://%s/charts/wmco --version %s\n\n## Images\n\n",
		o.version, changed, path.Dir(o.repository), o.version)
	text.WriteString("| Image | Digest |\n| --- | --- |\n")
	for _, image := range published {
		as, digest, _ := strings.Cut(image, " ")
		fmt.Fprintf(text, "| %s | `%s` |\n", as, digest)
	}
	text.WriteString("\n## The plugin of kubectl\n\n    kubectl krew install --manifest=windows.yaml --archive=<archive of your platform>\n\n" +
		"docs/plugin.md has the rest.\n")
	text.WriteString("\n## A check with Sonobuoy\n\n    sonobuoy run --plugin wmco-e2e.yaml --wait\n\n" +
		"docs/checking.md has the rest.\n")
	text.WriteString("\n## Programs of nodes\n\n| Program | Version | Source |\n| --- | --- | --- |\n")
	for _, f := range opened.Manifest().Files {
		fmt.Fprintf(text, "| %s | %s | %s |\n", f.Name, f.Version, f.Source)
	}
	for _, m := range opened.Manifest().Missing {
		fmt.Fprintf(text, "\nWithout %s: %s is off.\n", m.Name, m.Feature)
	}
	if o.changes == "" {
		return text.Bytes(), nil
	}
	changes, err := os.ReadFile(o.changes)
	if err != nil {
		return nil, err
	}
	text.WriteString("\n## Changes\n\n")
	lines := slices.Collect(strings.Lines(cmp.Or(string(changes), "none\n")))
	for _, line := range lines[:min(len(lines), maxChanges)] {
		text.WriteString("- " + strings.TrimRight(line, "\n") + "\n")
	}
	if more := len(lines) - maxChanges; more > 0 {
		fmt.Fprintf(text, "\nThe %d changes before them are in the history of the repository.\n", more)
	}
	return text.Bytes(), nil
}

// checksums returns the digests of a directory's files in the format of sha256sum.
func checksums(directory string) ([]byte, error) {
	files, err := tree(directory)
	if err != nil {
		return nil, err
	}
	text := &bytes.Buffer{}
	for _, f := range files {
		digest, err := digestOf(filepath.Join(directory, f.path))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(text, "%s  %s\n", digest, f.path)
	}
	return text.Bytes(), nil
}
