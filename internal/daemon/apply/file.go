package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// ErrDigest means that content does not have the expected digest.
var ErrDigest = errors.New("content has another digest")

// WriteFile writes content to path. If the SHA-256 of the content is not `digest`, WriteFile returns ErrDigest and
// leaves path unchanged. If path is the exe of a running program, WriteFile renames this exe, which Windows allows, and
// records the new name in the state file for RemoveAside.
func WriteFile(ctx context.Context, files winos.Files, stateFile *state.File, path, digest string,
	content io.Reader) error {
	err := StageFile(ctx, files, path, Content{Digest: digest, Content: content, Access: state.Access(path)})
	if err != nil {
		return err
	}
	aside, err := AsideName(files, path)
	if err == nil {
		stateFile.Aside.Add(aside)
		err = stateFile.Save()
	}
	if err == nil {
		err = CommitFile(ctx, files, path, aside)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), UnstageFile(files, path))
	}
	return nil
}

// Content is the content of a file.
type Content struct {
	// Digest is the lower-case hex SHA-256 of Content.
	Digest  string
	Content io.Reader
	Access  winos.Access
}

// StageFile writes a blob to a temporary file next to path and verifies it. CommitFile later replaces the file at path.
// If the digest differs, StageFile returns ErrDigest. After an error, there is no temporary file.
func StageFile(ctx context.Context, files winos.Files, path string, blob Content) error {
	w, err := files.Create(temporary(path), blob.Access)
	if err != nil {
		return fmt.Errorf("creating %s: %w", temporary(path), err)
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(w, sum), winos.Until(ctx, blob.Content))
	err = errors.Join(err, w.Close())
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != blob.Digest {
		err = ErrDigest
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), UnstageFile(files, path))
	}
	return nil
}

// UnstageFile deletes the temporary file of StageFile. If there is none, it does nothing.
func UnstageFile(files winos.Files, path string) error { return files.Remove(temporary(path)) }

// CommitFile renames the temporary file of StageFile to path. If path is the exe of a running program, CommitFile first
// renames this exe to `aside`. If path is not a program, `aside` must be empty. CommitFile needs no disk space. While
// another program has a file open, CommitFile retries for a second or until ctx ends.
func CommitFile(ctx context.Context, files winos.Files, path, aside string) error {
	moved := false
	return winos.UntilClosed(ctx.Done(), func() error {
		err := files.Rename(temporary(path), path)
		if aside != "" && !moved && errors.Is(err, winos.ErrInUse) {
			switch running := files.Rename(path, aside); {
			case errors.Is(running, fs.ErrNotExist):
				return err // path does not exist, so the temporary file is in use
			case running != nil:
				return fmt.Errorf("moving the running program aside: %w", running)
			}
			moved = true
			err = files.Rename(temporary(path), path)
		}
		if err != nil && moved {
			// Restore the old program, because an old program is better than none. If the old file is in use now, the
			// next attempt restores or replaces it.
			back := files.Rename(aside, path)
			moved = back != nil
			err = errors.Join(err, back)
		}
		return err
	})
}

func temporary(path string) string { return path + ".tmp" }

// AsideName returns an unused file name next to path. A running program can be moved to this name.
func AsideName(files winos.Files, path string) (string, error) {
	for n := 1; ; n++ {
		name := winos.AsidePath(path, n)
		there, err := winos.Exists(files, name)
		if err != nil {
			return "", fmt.Errorf("looking for a free name next to %s: %w", path, err)
		}
		if !there {
			return name, nil
		}
	}
}

// RemoveAside deletes programs that were moved aside. A program that still runs is deleted by a later call.
func RemoveAside(files winos.Files, stateFile *state.File) error {
	var all []error
	stateFile.Aside = slices.DeleteFunc(stateFile.Aside, func(path string) bool {
		err := files.Remove(path)
		if err != nil && !errors.Is(err, winos.ErrInUse) && !errors.Is(err, winos.ErrDenied) {
			all = append(all, fmt.Errorf("removing %s: %w", path, err))
		}
		return err == nil
	})
	return errors.Join(append(all, stateFile.Save())...)
}

// DigestOf returns the lower-case hex SHA-256 of a file, or fs.ErrNotExist. It waits while the file is in use.
func DigestOf(ctx context.Context, files winos.Files, path string) (digest string, err error) {
	r, err := winos.OpenClosed(files, path)
	if err != nil {
		return "", fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum := sha256.New()
	if _, err = io.Copy(sum, winos.Until(ctx, r)); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// FileProblem converts an error of reading or writing a file to a problem for the administrator.
func FileProblem(err error) *contract.Problem {
	switch {
	case errors.Is(err, winos.ErrNoSpace):
		return contract.ProblemOf(contract.ReasonDiskFull, err)
	case errors.Is(err, ErrDigest):
		return contract.ProblemOf(contract.ReasonPayloadCorrupt, err)
	}
	return contract.ProblemOf(contract.ReasonFileFailed, err)
}
