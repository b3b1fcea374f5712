package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Default limits of the daemon's log. They allow at most 60 MB in total.
const (
	DefaultSize  = 10 << 20
	DefaultFiles = 5
)

// Writer writes to a log file, and begins a new file at the maximum size. It is safe for concurrent use.
type Writer struct {
	files winos.Files
	path  string
	now   func() time.Time

	mu     sync.Mutex
	limits contract.Log
	out    io.WriteCloser
	size   int64
	// `lost` counts the lines that were lost since the last written line. `why` is the error of the last lost line.
	lost int
	why  error
}

// Open creates a log file that begins with the content of the existing file. So if the daemon crashes repeatedly, the
// lines that explain the crash are not displaced by new files. An existing file that is more than half full is not
// copied, but kept under another name, such as wicd-20260102-150405.log. If Open fails, for example because the
// directory of path does not exist yet, the first Write retries. `now` returns the host's time, for the names of older
// files.
func Open(files winos.Files, path string, now func() time.Time) *Writer {
	w := &Writer{files: files, path: path, now: now}
	w.Limit(contract.Log{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, err := w.begin(); err == nil {
		w.takeOver(before)
	}
	w.prune()
	return w
}

// Limit changes the limits. A size or count of 0 means the default, so that the log never fills the disk.
func (w *Writer) Limit(limits contract.Log) {
	if limits.MaxSize <= 0 {
		limits.MaxSize = DefaultSize
	}
	if limits.MaxFiles <= 0 {
		limits.MaxFiles = DefaultFiles
	}
	limits.Path = w.path
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits = limits
}

// Write writes a line. If the file can't be written, the line is lost, but Write returns no error: the daemon continues
// without its log. The next written line says how many lines are missing, and why.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.write(line); err != nil {
		w.lost, w.why = w.lost+1, err
		return len(line), nil
	}
	w.lost, w.why = 0, nil
	return len(line), nil
}

func (w *Writer) write(line []byte) error {
	if w.out == nil || w.size > 0 && w.size+int64(len(line)) > w.limits.MaxSize {
		err := w.end()
		_, failed := w.begin()
		if w.out == nil {
			return errors.Join(err, failed)
		}
		w.prune()
	}
	if w.lost > 0 { // begin a new line, because the last line may be incomplete
		line = append(fmt.Appendf(nil, "\nlines missing here: %d (%v)\n", w.lost, w.why), line...)
	}
	n, err := w.out.Write(line)
	w.size += int64(n)
	// On a full disk, the next line goes to the same file. A new file would have no space either, and an older file
	// would be removed for it.
	if err != nil && !errors.Is(err, winos.ErrNoSpace) {
		_ = w.end() // the next line tries a new file
	}
	return err
}

// Close closes the file. A second call changes nothing.
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

// begin renames the previous file and creates a new one. It returns the new name of the previous file. If another
// program is reading the previous file, the previous file can't be renamed. Then the log continues in a file with
// another name, and begin returns an empty name.
func (w *Writer) begin() (before string, err error) {
	aside, err := AsideName(w.files, w.path, w.now())
	if err != nil {
		return "", fmt.Errorf("finding a name for the previous log: %w", err)
	}
	path := w.path
	switch err = w.files.Rename(w.path, aside); {
	case errors.Is(err, winos.ErrInUse):
		path = aside
	case err == nil:
		before = aside
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("renaming log %s: %w", w.path, err)
	}
	out, err := w.files.Create(path, winos.AccessInherit)
	if err != nil {
		return "", fmt.Errorf("creating log %s: %w", path, err)
	}
	w.out, w.size = out, 0
	return before, nil
}

// takeOver copies the content of the previous file, which begin has renamed, into the current file. Then it deletes the
// previous file. If the previous file is more than half full or can't be copied, takeOver keeps it.
func (w *Writer) takeOver(before string) {
	if info, err := w.files.Stat(before); err != nil || info.Size > w.limits.MaxSize/2 {
		return
	}
	in, err := w.files.Open(before)
	if err != nil {
		return
	}
	w.size, err = io.Copy(w.out, in)
	if errors.Join(err, in.Close()) == nil {
		_ = w.files.Remove(before)
	}
}

// prune deletes the oldest files. It ignores errors, because it runs again with the next file.
func (w *Writer) prune() { _ = Prune(w.files, w.limits, w.now()) }
