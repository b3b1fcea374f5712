package sealed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// confidential is the purpose of what is sealed: what was sealed for another is not taken.
const confidential = "confidential "

// Store is the directory of sealed files on one host.
type Store struct {
	files   winos.Files
	secrets winos.Secrets
}

// New gives the sealed store of a host. Its directory need not exist.
func New(host winos.Host) *Store { return &Store{files: host.Files, secrets: host.Secrets} }

// Keep seals the confidential part that has this digest. Keeping what is there already changes
// nothing. Errors are those of winos.Files.
func (v *Store) Keep(ctx context.Context, digest string, data []byte) error {
	if err := contract.CheckDigest(digest); err != nil {
		return err
	}
	if have, err := v.Get(ctx, digest); err == nil && bytes.Equal(have, data) {
		return nil
	}
	return v.write(ctx, digest, data, confidential+digest)
}

// Get gives the confidential part that has this digest, as it was kept; the caller checks that it
// is what it should be. What is not there is fs.ErrNotExist; what can't be decrypted (any more) is
// winos.ErrNotSealedHere.
func (v *Store) Get(ctx context.Context, digest string) ([]byte, error) {
	if err := contract.CheckDigest(digest); err != nil {
		return nil, err
	}
	return v.read(ctx, digest, confidential+digest)
}

// Sweep removes the confidential parts that have none of these digests.
func (v *Store) Sweep(keep ...string) error {
	entries, err := v.files.List(contract.DirSealed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing what is sealed: %w", err)
	}
	var all []error
	for _, e := range entries {
		digest := strings.TrimSuffix(e.Name, ".tmp")
		if contract.CheckDigest(digest) != nil || slices.Contains(keep, digest) && digest == e.Name {
			continue
		}
		if err = v.files.Remove(path(e.Name)); err != nil {
			all = append(all, fmt.Errorf("removing what was sealed: %w", err))
		}
	}
	return errors.Join(all...)
}

func (v *Store) write(ctx context.Context, name string, plain []byte, purpose string) error {
	sealed, err := v.secrets.Seal(ctx, plain, purpose)
	if err != nil {
		return fmt.Errorf("sealing %.16s: %w", name, err)
	}
	if err = v.files.MkdirAll(contract.DirSealed, winos.AccessAdministrators); err != nil {
		return fmt.Errorf("making %s: %w", contract.DirSealed, err)
	}
	if err = winos.WriteFile(v.files, path(name), bytes.NewReader(sealed), winos.AccessAdministrators); err != nil {
		return fmt.Errorf("writing what is sealed: %w", err)
	}
	return nil
}

func (v *Store) read(ctx context.Context, name, purpose string) ([]byte, error) {
	var sealed []byte
	err := winos.UntilClosed(ctx.Done(), func() (err error) {
		sealed, err = winos.ReadFile(v.files, path(name))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading what is sealed: %w", err)
	}
	plain, err := v.secrets.Unseal(ctx, sealed, purpose)
	if err != nil {
		return nil, fmt.Errorf("unsealing %.16s: %w", name, err)
	}
	return plain, nil
}

func path(name string) string { return contract.DirSealed + `\` + name }
