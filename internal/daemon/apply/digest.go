package apply

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// digestLife is how long a digest is trusted while size and time of the file don't change. The
// payload is some 300 MB, so reading it once an hour costs nothing that anybody notices, and finds
// what hides from size and time.
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

// changed is the digest of a file that no longer looks as it did when it was read.
const changed = "changed"

// of is the digest of a file, or nothing when there is no such file, and who may open it. A file that
// somebody has open is waited for.
func (d *digests) of(ctx context.Context, path string, w *waits) (string, winos.Access, error) {
	digest, access := d.cached(path)
	if digest != changed {
		return digest, access, nil
	}
	// The look comes first: a change while reading then shows as a change since.
	info, err := d.files.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		d.known[path] = seen{at: d.now()}
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	digest, err = digestOf(ctx, path, func() (r io.ReadCloser, err error) {
		err = w.untilClosed(ctx, func() error { r, err = d.files.Open(path); return err })
		return r, err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	d.known[path] = seen{info: info, digest: digest, at: d.now()}
	return digest, info.Access, nil
}

// cached is the digest of a file that looks as it did when it was read, not too long ago; changed
// otherwise.
func (d *digests) cached(path string) (digest string, access winos.Access) {
	s, ok := d.known[path]
	if !ok || winos.Age(d.now(), s.at) > digestLife {
		return changed, 0
	}
	info, err := d.files.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.digest == "":
		return "", 0
	case err != nil || s.digest == "" || info.Dir != s.info.Dir || info.Size != s.info.Size ||
		!info.ModTime.Equal(s.info.ModTime):
		return changed, 0
	}
	return s.digest, info.Access
}

func (d *digests) drop(path string) { delete(d.known, path) }

func (d *digests) forget() { clear(d.known) }
