package payload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Store is the directory of blobs on one host. Open and Drop don't check the digest: call them with valid digests only.
type Store struct {
	files winos.Files
	path  func(digest string) string
}

// NewStore returns the store of a host. The store's directory need not exist.
func NewStore(files winos.Files) *Store {
	return NewStoreAt(files, func(digest string) string { return contract.DirStore + `\` + digest })
}

// NewStoreAt returns a store that keeps each blob at path(digest).
func NewStoreAt(files winos.Files, path func(digest string) string) *Store {
	return &Store{files, path}
}

// Missing returns the wanted blobs that the store lacks or has with a wrong size, without duplicates.
func (s *Store) Missing(want []contract.Blob) (missing []contract.Blob, err error) {
	seen := make(map[string]bool, len(want))
	for _, b := range want {
		if seen[b.Digest] {
			continue
		}
		seen[b.Digest] = true
		if err = contract.CheckDigest(b.Digest); err != nil {
			return nil, err
		}
		info, err := s.files.Stat(s.path(b.Digest))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, b)
		case err != nil:
			return nil, fmt.Errorf("looking for blob %.16s: %w", b.Digest, err)
		case info.Dir || info.Size != b.Size:
			missing = append(missing, b)
		}
	}
	return missing, nil
}

// Open returns a blob's unverified content. If the blob is missing, the error has ReasonPayloadIncomplete.
func (s *Store) Open(digest string) (io.ReadCloser, error) {
	r, err := s.files.Open(s.path(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, contract.NewProblem(contract.ReasonPayloadIncomplete, "blob %.16s is not on the host", digest)
	}
	if err != nil {
		return nil, fmt.Errorf("opening blob %.16s: %w", digest, err)
	}
	return r, nil
}

// Drop removes a damaged blob, so that it counts as missing. A second call changes nothing.
func (s *Store) Drop(digest string) error {
	if err := s.files.Remove(s.path(digest)); err != nil {
		return fmt.Errorf("removing damaged blob %.16s: %w", digest, err)
	}
	return nil
}

// Adopt copies a file of the host into the store if the file's content is a wanted blob that the store lacks. This
// avoids a download. A missing file is not an error.
func (s *Store) Adopt(ctx context.Context, file string, wanted []contract.Blob) error {
	missing, err := s.Missing(wanted)
	if err != nil || len(missing) == 0 {
		return err
	}
	info, err := s.files.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at %s: %w", file, err)
	}
	for _, b := range missing {
		if b.Size != info.Size {
			continue
		}
		err = s.Put(b, func(w io.Writer) error { return s.read(ctx, file, w) })
		if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonPayloadCorrupt {
			return err
		}
	}
	return nil
}

// Put implements payload.Put. All calls of the operator use the same temporary file name, because only one call runs at
// a time. The daemon uses another name, because the operator may send a blob while the daemon fetches it.
func (s *Store) Put(blob contract.Blob, write func(w io.Writer) error) error {
	return s.put(blob, ".tmp", write)
}

// `put` is like Put, but the name of the temporary file ends with suffix.
func (s *Store) put(blob contract.Blob, suffix string, write func(w io.Writer) error) error {
	if err := contract.CheckDigest(blob.Digest); err != nil {
		return err
	}
	temporary := s.path(blob.Digest) + suffix
	w, err := s.files.Create(temporary, winos.AccessAdministrators)
	if err != nil {
		return fmt.Errorf("creating blob %.16s: %w", blob.Digest, err)
	}
	sum := sha256.New()
	err = errors.Join(write(io.MultiWriter(w, sum)), w.Close())
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil && got != blob.Digest {
		err = contract.NewProblem(contract.ReasonPayloadCorrupt, "what arrived has digest %.16s", got)
	}
	if err == nil {
		err = winos.Replace(s.files, temporary, s.path(blob.Digest))
	}
	if err != nil {
		return errors.Join(err, s.files.Remove(temporary))
	}
	return nil
}

func (s *Store) read(ctx context.Context, file string, into io.Writer) (err error) {
	r, err := winos.OpenClosed(s.files, file)
	if err != nil {
		return fmt.Errorf("opening %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err = io.Copy(into, winos.Until(ctx, r)); err != nil {
		return fmt.Errorf("copying %s: %w", file, err)
	}
	return nil
}

// Sweep removes files that were written before the time `before`: blobs whose digests are not in `named`, and temporary
// files of interrupted transfers. If a file can't be removed, Sweep continues with the others.
func (s *Store) Sweep(named map[string]bool, before time.Time) (removed int, err error) {
	entries, err := s.files.List(contract.DirStore)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("listing the store: %w", err)
	}
	var all []error
	for _, e := range entries {
		digest, _, _ := strings.Cut(e.Name, ".") // the name of a temporary file begins with the digest
		if e.Dir || named[e.Name] || contract.CheckDigest(digest) != nil || e.ModTime.After(before) {
			continue
		}
		if err = s.files.Remove(s.path(e.Name)); err != nil {
			all = append(all, fmt.Errorf("removing blob %.16s: %w", e.Name, err))
			continue
		}
		removed++
	}
	return removed, errors.Join(all...)
}
