package sshd

import (
	"bytes"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// Fileread opens a file for reading.
func (f face) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	return f.open(r, os.O_RDONLY)
}

// Filewrite opens a file for writing.
func (f face) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	return f.open(r, os.O_WRONLY)
}

// OpenFile opens a file for reading and writing.
func (f face) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) {
	return f.open(r, os.O_RDWR)
}

func (f face) open(r *sftp.Request, flag int) (*handle, error) {
	wanted := r.Pflags()
	for _, choice := range []struct {
		wanted bool
		flag   int
	}{{wanted.Creat, os.O_CREATE}, {wanted.Excl, os.O_EXCL}, {wanted.Trunc, os.O_TRUNC}} {
		if choice.wanted && flag != os.O_RDONLY {
			flag |= choice.flag
		}
	}
	file, err := f.machine.OpenFile(windowsPath(r.Filepath), flag)
	if err != nil {
		return nil, translate(err)
	}
	return &handle{file: file, network: f.network}, nil
}

// handle is an open file. Several goroutines may call its methods at the same time.
type handle struct {
	file    File
	network *network
}

// ReadAt implements io.ReaderAt.
func (h *handle) ReadAt(p []byte, offset int64) (int, error) {
	n, err := h.file.ReadAt(p, offset)
	return n, translate(err)
}

// WriteAt implements io.WriterAt. If the fault Corrupt is set, it changes the data.
func (h *handle) WriteAt(p []byte, offset int64) (int, error) {
	settings := h.network.settings()
	if c := settings.Faults.Corrupt; c != nil && c.At >= offset && c.At < offset+int64(len(p)) &&
		spend(settings.corruptions) {
		p = bytes.Clone(p)
		p[c.At-offset] ^= 0x01
	}
	n, err := h.file.WriteAt(p, offset)
	return n, translate(err)
}

// Close closes the file. It also returns errors of earlier writes.
func (h *handle) Close() error { return translate(h.file.Close()) }
