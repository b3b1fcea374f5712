package payload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

// memorySink is a Sink that keeps blobs in memory. It checks that its caller follows the rules of Sink. Tests can make
// its methods fail.
type memorySink struct {
	kept      map[string][]byte
	open      int
	createErr error
	writeErr  error
	commitErr error
}

func newMemorySink() *memorySink { return &memorySink{kept: map[string][]byte{}} }

func (s *memorySink) Create(blob contract.Blob) (Pending, error) {
	if s.createErr != nil {
		return nil, s.createErr
	}
	s.open++
	return &memoryPending{sink: s, blob: blob}, nil
}

type memoryPending struct {
	sink *memorySink
	blob contract.Blob
	data bytes.Buffer
	done bool
}

func (p *memoryPending) Write(b []byte) (int, error) {
	if p.done {
		return 0, errors.New("a write after the end")
	}
	if p.sink.writeErr != nil {
		return 0, p.sink.writeErr
	}
	if int64(p.data.Len()+len(b)) > p.blob.Size {
		return 0, errors.New("the write is longer than the blob")
	}
	return p.data.Write(b)
}

func (p *memoryPending) Commit() error {
	if err := p.end(); err != nil {
		return err
	}
	if p.sink.commitErr != nil {
		return p.sink.commitErr
	}
	if got := digestOf(p.data.Bytes()); got != p.blob.Digest {
		return fmt.Errorf("committed with digest %s instead of %s", got, p.blob.Digest)
	}
	p.sink.kept[p.blob.Digest] = p.data.Bytes()
	return nil
}

func (p *memoryPending) Discard() error { return p.end() }

func (p *memoryPending) end() error {
	if p.done {
		return errors.New("ended twice")
	}
	p.done = true
	p.sink.open--
	return nil
}

// assertConsistent fails the test if a blob was neither committed nor discarded, or if stored and missing together are
// not the wanted blobs.
func (s *memorySink) assertConsistent(t *testing.T, want []contract.Blob, stored []string, missing []contract.Blob) {
	t.Helper()
	// A Commit that fails counts as committed.
	if s.open != 0 {
		t.Errorf("%d blobs were neither committed nor discarded", s.open)
	}
	unique := map[string]bool{}
	for _, b := range want {
		unique[b.Digest] = true
	}
	if len(stored)+len(missing) != len(unique) {
		t.Errorf("stored %d and missing %d are not the %d wanted blobs", len(stored), len(missing), len(unique))
	}
	if len(stored) != len(s.kept) {
		t.Errorf("stored has %d blobs, the sink has %d", len(stored), len(s.kept))
	}
	for _, digest := range stored {
		if !unique[digest] || s.kept[digest] == nil && digest != digestOf(nil) {
			t.Errorf("%s is reported as stored, but is not wanted or not in the sink", digest)
		}
	}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// blobOf returns a blob with the given content.
func blobOf(content []byte) Blob {
	return Blob{
		Blob: contract.Blob{Digest: digestOf(content), Size: int64(len(content))},
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
	}
}

// wanted returns the digests and sizes of blobs.
func wanted(blobs []Blob) []contract.Blob {
	bare := make([]contract.Blob, 0, len(blobs))
	for _, b := range blobs {
		bare = append(bare, b.Blob)
	}
	return bare
}
