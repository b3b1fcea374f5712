// Package logfile answers where the daemon's log lines go: to one file of bounded size, with a few older ones beside it.
//
// The service writes its log through it. It is no logger: it takes lines, and never fails the caller.
package logfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// keepOld is how many older files stay. With the default size that bounds the log to 60 MB.
const keepOld = 5

// DefaultSize is the size of a file when none is given.
const DefaultSize = 10 << 20

// Writer writes to a file, and begins a new one at its limit. It is safe for concurrent use.
type Writer struct {
	files winos.Files
	path  string
	limit int64

	mu   sync.Mutex
	out  io.WriteCloser
	size int64
}

// Open begins a new file at path, keeping what is there as path.1 and so on. limit is in bytes; 0 means DefaultSize. The directory must exist.
func Open(files winos.Files, path string, limit int64) (*Writer, error) {
	if limit <= 0 {
		limit = DefaultSize
	}
	w := &Writer{files: files, path: path, limit: limit}
	return w, w.begin()
}

// Write writes a line. A file that can't be written to loses it: the daemon goes on without its log rather than not at all.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == nil || w.size > 0 && w.size+int64(len(line)) > w.limit {
		if err := errors.Join(w.end(), w.begin()); err != nil {
			return len(line), nil
		}
	}
	n, err := w.out.Write(line)
	w.size += int64(n)
	if err != nil {
		_ = w.end() // the next line tries a new file
	}
	return len(line), nil
}

// Close ends the file. Repeating it changes nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.end()
}

func (w *Writer) end() error {
	if w.out == nil {
		return nil
	}
	err := w.out.Close()
	w.out, w.size = nil, 0
	return err
}

// begin moves the older files on by one and makes a new one.
func (w *Writer) begin() error {
	for n := keepOld; n > 0; n-- {
		from := w.path
		if n > 1 {
			from = fmt.Sprintf("%s.%d", w.path, n-1)
		}
		err := w.files.Rename(from, fmt.Sprintf("%s.%d", w.path, n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("moving log %s on: %w", from, err)
		}
	}
	out, err := w.files.Create(w.path, winos.AccessInherit)
	if err != nil {
		return fmt.Errorf("creating log %s: %w", w.path, err)
	}
	w.out, w.size = out, 0
	return nil
}
