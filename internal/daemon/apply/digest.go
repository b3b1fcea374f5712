package apply

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// digestLife is how long a cached digest is trusted while the file's size and time don't change. Reading the payload
// (about 300 MB) once an hour is cheap, and finds changes that preserve size and time.
const digestLife = time.Hour

type digests struct {
	files winos.Files
	now   func() time.Time
	known map[string]seen
}

// `seen` is the state of a file when it was read. A missing file has no digest.
type seen struct {
	info   winos.FileInfo
	digest string
	at     time.Time
}

// `changed` stands for the digest of a file that has changed since it was read.
const changed = "changed"

// `of` returns the digest and the access rights of a file. The digest of a missing file is "".
func (d *digests) of(ctx context.Context, path string) (string, winos.Access, error) {
	digest, access := d.cached(path)
	if digest != changed {
		return digest, access, nil
	}
	// Call Stat before the read, so that the next call notices a change that happens during the read.
	info, err := d.files.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		d.known[path] = seen{at: d.now()}
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	digest, err = DigestOf(ctx, d.files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	d.known[path] = seen{info: info, digest: digest, at: d.now()}
	return digest, info.Access, nil
}

// `cached` returns the cached digest of a file. If the file has changed or the digest is too old, it returns `changed`.
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
