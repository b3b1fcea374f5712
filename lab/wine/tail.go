//go:build linux

package wine

import (
	"bytes"
	"strings"
	"sync"
)

// tail keeps the end of the data that is written to it.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailLength = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if extra := t.text.Len() - tailLength; extra > 0 {
		t.text.Next(extra)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.text.String())
}
