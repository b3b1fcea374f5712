package keep

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/windows-nodes/wmco/internal/agent/place"
	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// digestLife is how long a digest is trusted while size and time of the file don't change. The payload is some 300 MB, so reading it once an hour costs
// nothing that anybody notices, and finds what hides from size and time.
const digestLife = time.Hour

// digests knows the digests of files without reading them all the time.
type digests struct {
	files winos.Files
	now   func() time.Time
	known map[string]seen
}

// seen is a file when it was read; a file that was not there has no digest.
type seen struct {
	info   winos.FileInfo
	digest string
	at     time.Time
}

// of is the digest of a file, or nothing when there is no such file.
func (d *digests) of(ctx context.Context, path string) (string, error) {
	if d.fresh(path) {
		return d.known[path].digest, nil
	}
	// The look comes first: a change while reading then shows as a change since.
	info, err := d.files.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		d.known[path] = seen{at: d.now()}
		return "", nil
	}
	if err != nil {
		return "", err
	}
	digest, err := place.Digest(ctx, d.files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	d.known[path] = seen{info: info, digest: digest, at: d.now()}
	return digest, nil
}

// fresh says whether a file looks as it did when it was read, not too long ago.
func (d *digests) fresh(path string) bool {
	s, ok := d.known[path]
	if !ok || d.now().Sub(s.at) > digestLife {
		return false
	}
	info, err := d.files.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.digest == ""
	}
	return err == nil && s.digest != "" && info.Dir == s.info.Dir && info.Size == s.info.Size && info.ModTime.Equal(s.info.ModTime)
}

func (d *digests) drop(path string) { delete(d.known, path) }

func (d *digests) forget() { clear(d.known) }
