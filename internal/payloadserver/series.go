package payloadserver

import (
	"cmp"
	"errors"
	"io"

	"github.com/windows-nodes/wmco/internal/payload"
)

// series reads blobs one after the other.
type series struct {
	blobs []payload.Blob
	// at is the position in all blobs. open reads one of them, and is at the position opened.
	at, opened int64
	open       io.ReadCloser
	// err is the first error of a Read.
	err error
}

// Seek implements io.Seeker for http.ServeContent, which seeks from the start and from the end.
func (s *series) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		for _, b := range s.blobs {
			offset += b.Size
		}
	}
	s.at = offset
	return s.at, nil
}

// Read implements io.Reader. It reads to the end of one blob at most.
func (s *series) Read(p []byte) (n int, err error) {
	defer func() { s.err = cmp.Or(s.err, err) }()
	offset := s.at
	for _, b := range s.blobs {
		if offset >= b.Size {
			offset -= b.Size
			continue
		}
		if s.opened != s.at {
			err = s.Close()
		}
		if s.open == nil && err == nil {
			s.open, err = openAt(b, offset)
		}
		if err != nil {
			return 0, err
		}
		n, err = s.open.Read(p[:min(int64(len(p)), b.Size-offset)])
		s.at += int64(n)
		if s.opened = s.at; err == nil && offset+int64(n) == b.Size {
			err = s.Close()
		}
		return n, err
	}
	return 0, io.EOF
}

func openAt(b payload.Blob, offset int64) (io.ReadCloser, error) {
	content, err := b.Open()
	if err != nil {
		return nil, err
	}
	seeker, ok := content.(io.Seeker)
	if !ok {
		return content, errors.New("the blob can't be sent in part")
	}
	_, err = seeker.Seek(offset, io.SeekStart)
	return content, err
}

// Close closes the open blob. A later Read opens it again.
func (s *series) Close() error {
	if s.open == nil {
		return nil
	}
	err := s.open.Close()
	s.open = nil
	return err
}
