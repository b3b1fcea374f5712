package payloadimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/payload"
)

const (
	// maxManifest bounds payload.json, and maxEntries what stands in a layer before its file.
	maxManifest = 1 << 20
	maxEntries  = 16
	// answerTime is how long a registry may take to answer, and leastRate how many bytes of a layer must
	// come in a second on average: at it, 40 MB take ten minutes.
	answerTime = time.Minute
	leastRate  = 64 << 10
)

// invalid is what no other registry would mend: the image itself can't be used.
type invalid struct{ error }

func invalidf(format string, args ...any) error { return invalid{fmt.Errorf(format, args...)} }

// Check says what is wrong with the name of an image. The error is a *contract.Problem.
func Check(image string) error {
	if _, err := name.NewDigest(image); err != nil {
		return contract.NewProblem(contract.ReasonPayloadImageInvalid,
			"%.200q is not the name of an image with its digest, <registry>/<repository>@sha256:<digest>", image)
	}
	if _, err := mirror.ParseReference(image); err != nil {
		return contract.NewProblem(contract.ReasonPayloadImageInvalid, "%.200q: %v", image, err)
	}
	return nil
}

// pull brings an image into the directory, from the first place that has it. The error is a
// *contract.Problem.
func (s *Store) pull(ctx context.Context, image string, access Access) error {
	if err := Check(image); err != nil {
		return err
	}
	named, _ := mirror.ParseReference(image) // checked
	_, digest, _ := strings.Cut(image, "@")  // checked
	if err := s.tidy(); err != nil {
		return contract.NewProblem(contract.ReasonPayloadImageNotPulled, "preparing the directory for it: %v", err)
	}
	sources := access.Rules.Sources(named)
	if len(sources) == 0 {
		return contract.NewProblem(contract.ReasonPayloadImageNotPulled,
			"the cluster's settings let %s be pulled from nowhere", image)
	}
	why := make([]string, 0, len(sources))
	for _, from := range sources {
		err := s.pullFrom(ctx, from, digest, access)
		if err == nil {
			return nil
		}
		var bad invalid
		if errors.As(err, &bad) {
			return contract.NewProblem(contract.ReasonPayloadImageInvalid, "%s: %v", image, err)
		}
		why = append(why, from.Host+"/"+from.Repository+": "+explain(err))
	}
	return contract.NewProblem(contract.ReasonPayloadImageNotPulled, "pulling %s: %s", image, strings.Join(why, "; "))
}

func (s *Store) pullFrom(ctx context.Context, from mirror.Pull, digest string, access Access) error {
	options, named := access.options(from)
	ref, err := name.NewDigest(from.Address()+"/"+from.Repository+"@"+digest, named...)
	if err != nil {
		return err
	}
	image, err := s.describe(ctx, ref, options)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	first := image.Layers[0]
	if err = s.layer(ctx, ref, first, options, payload.ManifestName, maxManifest, &text); err != nil {
		return fmt.Errorf("reading %s: %w", payload.ManifestName, err)
	}
	manifest, err := payload.ParseManifest(text.Bytes())
	if err == nil {
		err = manifest.Joinable()
	}
	if err != nil {
		return invalid{err}
	}
	blobs := manifest.Blobs()
	if err = s.fits(blobs, image.Layers[1:]); err != nil {
		return err
	}
	if err = s.makeRoom(blobs); err != nil {
		return err
	}
	for i, b := range blobs {
		if err = s.blob(ctx, ref, image.Layers[1+i], options, b); err != nil {
			return fmt.Errorf("pulling blob %.12s: %w", b.Digest, err)
		}
	}
	// last, because it says that all is there
	return writeFile(manifestPath(s.Dir, digest), bytes.NewReader(text.Bytes()))
}

// describe reads the image's manifest, of an index that for Linux on amd64. Its layers are within the
// limit.
func (s *Store) describe(ctx context.Context, ref name.Digest, options []remote.Option) (*v1.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, s.answerTime)
	defer cancel()
	options = append(options[:len(options):len(options)], remote.WithContext(ctx),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	image, err := found.Image()
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	var sum int64
	for _, l := range manifest.Layers {
		if l.Size < 0 || l.Size > s.Limit-sum {
			return nil, invalidf("it is larger than %d bytes", s.Limit)
		}
		sum += l.Size
	}
	if len(manifest.Layers) == 0 {
		return nil, invalidf("it has no layers")
	}
	return manifest, nil
}

// fits makes sure that there is one layer for each blob, and that all are within the limit.
func (s *Store) fits(blobs []contract.Blob, layers []v1.Descriptor) error {
	if len(blobs) != len(layers) {
		return invalidf("it has %d blobs and %d layers for them: it is not what make image makes", len(blobs),
			len(layers))
	}
	var sum int64
	for _, b := range blobs {
		if b.Size > s.Limit-sum {
			return invalidf("its blobs are larger than %d bytes", s.Limit)
		}
		sum += b.Size
	}
	return nil
}

// blob brings one blob into the directory, unless it is there: from the embedded payload, or else from
// its layer.
func (s *Store) blob(ctx context.Context, ref name.Digest, layer v1.Descriptor, options []remote.Option,
	want contract.Blob) error {
	target := filepath.Join(blobDir(s.Dir), want.Digest)
	if info, err := os.Stat(target); err == nil && info.Size() == want.Size {
		return nil
	}
	file, err := os.CreateTemp(blobDir(s.Dir), newFile)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // there is nothing to remove after the rename
	hash := sha256.New()
	to := io.MultiWriter(file, hash)
	own, embedded := s.Embedded.Blob(want.Digest)
	if embedded {
		err = copyBlob(to, own)
	} else {
		err = s.layer(ctx, ref, layer, options, blobFolder+"/"+want.Digest, want.Size, to)
	}
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	switch got := hex.EncodeToString(hash.Sum(nil)); {
	case got == want.Digest:
	case embedded:
		return fmt.Errorf("the embedded payload has content with digest %.12s", got)
	default:
		return invalidf("its content has digest %.12s", got)
	}
	return os.Rename(file.Name(), target)
}

// tidy makes the directory, without what an interrupted pull left.
func (s *Store) tidy() error {
	if err := os.MkdirAll(blobDir(s.Dir), 0o755); err != nil { //nolint:gosec // it has no secrets
		return err
	}
	var all []error
	for _, dir := range []string{s.Dir, blobDir(s.Dir)} {
		left, _ := filepath.Glob(filepath.Join(dir, newFile)) // the pattern is right
		for _, f := range left {
			all = append(all, os.Remove(f))
		}
	}
	return errors.Join(all...)
}

func copyBlob(to io.Writer, b payload.Blob) (err error) {
	r, err := b.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	_, err = io.Copy(to, r)
	return err
}

// layer writes the one file of a layer, which must have the name and at most as many bytes.
func (s *Store) layer(ctx context.Context, ref name.Digest, of v1.Descriptor, options []remote.Option, file string,
	limit int64, to io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.answerTime+time.Duration(of.Size)*time.Second/leastRate)
	defer cancel()
	l, err := remote.Layer(ref.Digest(of.Digest.String()), append(options[:len(options):len(options)],
		remote.WithContext(ctx))...)
	if err != nil {
		return err
	}
	packed, err := l.Compressed()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, packed.Close()) }()
	err = oneFile(io.LimitReader(packed, of.Size), file, limit, to)
	// What was read is the layer only if all of it has the layer's digest, which shows at its end.
	if _, wrong := io.CopyN(io.Discard, packed, of.Size+1); !errors.Is(wrong, io.EOF) {
		return fmt.Errorf("it sends something else than the layer: %w", wrong)
	}
	return err
}

// oneFile writes the one file of a packed layer.
func oneFile(packed io.Reader, file string, limit int64, to io.Writer) error {
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return fmt.Errorf("unpacking the layer: %w", err)
	}
	for entries, n := tar.NewReader(plain), 0; n < maxEntries; n++ {
		header, err := entries.Next()
		if err != nil {
			return fmt.Errorf("unpacking the layer: %w", err)
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if header.Typeflag != tar.TypeReg || path.Clean(header.Name) != imageFolder+"/"+file || header.Size > limit {
			return invalidf("a layer has %.100q of %d bytes instead of %s: it is not what make image makes",
				header.Name, header.Size, file)
		}
		if _, err = io.Copy(to, entries); err != nil {
			return fmt.Errorf("unpacking the layer: %w", err)
		}
		return nil
	}
	return invalidf("a layer has no file among its first %d entries", maxEntries)
}

const (
	// imageFolder is where a payload lies in its image, and blobFolder its blobs below that.
	imageFolder = "payload"
	blobFolder  = "sha256"
	// newFile is the name of what is not whole yet.
	newFile = ".new-*"
)

func blobDir(dir string) string { return filepath.Join(dir, blobFolder) }

// manifestName names the manifest of an image after the image's digest.
func manifestName(digest string) string {
	return strings.TrimPrefix(digest, "sha256:") + ".json"
}

func manifestPath(dir, digest string) string { return filepath.Join(dir, manifestName(digest)) }

// writeFile replaces a file in one step.
func writeFile(target string, content io.Reader) error {
	file, err := os.CreateTemp(filepath.Dir(target), newFile)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // there is nothing to remove after the rename
	_, err = io.Copy(file, content)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), target)
}
