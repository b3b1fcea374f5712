package payload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

// memorySink keeps blobs in memory. Tests can make its method put fail.
type memorySink struct {
	kept      map[string][]byte
	createErr error
	writeErr  error
	commitErr error
}

func newMemorySink() *memorySink { return &memorySink{kept: map[string][]byte{}} }

// put implements Put.
func (s *memorySink) put(blob contract.Blob, write func(w io.Writer) error) error {
	if s.createErr != nil {
		return s.createErr
	}
	var data bytes.Buffer
	err := write(writerFunc(func(b []byte) (int, error) {
		if s.writeErr != nil {
			return 0, s.writeErr
		}
		if int64(data.Len()+len(b)) > blob.Size {
			return 0, errors.New("the write is longer than the blob")
		}
		return data.Write(b)
	}))
	switch {
	case err != nil:
		return err
	case s.commitErr != nil:
		return s.commitErr
	case digestOf(data.Bytes()) != blob.Digest:
		return contract.NewProblem(contract.ReasonPayloadCorrupt, "another digest")
	}
	s.kept[blob.Digest] = data.Bytes()
	return nil
}

// missing returns the wanted blobs that the sink lacks, each once. It fails the test if the sink has other blobs.
func (s *memorySink) missing(t *testing.T, want []contract.Blob) (missing []contract.Blob) {
	t.Helper()
	kept := 0
	seen := map[string]bool{}
	for _, b := range want {
		if seen[b.Digest] {
			continue
		}
		seen[b.Digest] = true
		if _, has := s.kept[b.Digest]; has {
			kept++
		} else {
			missing = append(missing, b)
		}
	}
	if kept != len(s.kept) {
		t.Errorf("the sink has %d blobs, and %d of them are wanted", len(s.kept), kept)
	}
	return missing
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
