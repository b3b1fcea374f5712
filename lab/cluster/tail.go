package cluster

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// tailBytes limits how many bytes of a log are read to explain why a component ended. They are enough for about twenty
// long lines.
const tailBytes = 8 << 10

// lastLines returns the last n lines of a file. It reads at most the last tailBytes bytes, and omits a line that they
// contain only partly. For a missing file, it returns nothing.
func lastLines(path string, n int) ([]string, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	offset := max(0, info.Size()-tailBytes)
	content, err := io.ReadAll(io.NewSectionReader(file, offset, tailBytes))
	if err != nil {
		return nil, err
	}
	text := strings.TrimRight(string(content), "\n")
	if text == "" {
		return nil, nil
	}
	lines := strings.Split(text, "\n")
	if offset > 0 && len(lines) > 1 {
		lines = lines[1:] // the first line is incomplete
	}
	return lines[max(0, len(lines)-n):], nil
}

// tailWriter keeps the last bytes that were written to it. It can be used concurrently.
type tailWriter struct {
	limit int

	mu   sync.Mutex
	kept []byte
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, p...)
	if over := len(w.kept) - w.limit; over > 0 {
		w.kept = append([]byte(nil), w.kept[over:]...)
	}
	return len(p), nil
}

func (w *tailWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimRight(string(w.kept), "\n")
}
