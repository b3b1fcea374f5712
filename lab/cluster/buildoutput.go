package cluster

import (
	"bytes"
	"fmt"
	"sync"
)

// buildOutput parses the output of go build -v: the path of each package when its compilation starts, and the errors of
// the compiler. It counts the packages and keeps the last errors.
type buildOutput struct {
	complaints *tailWriter

	mu      sync.Mutex
	total   int
	waiting map[string]bool // packages that are not compiled yet
	last    string          // the package that was started last
	line    []byte          // an incomplete line
}

func newBuildOutput(stale []string) *buildOutput {
	o := &buildOutput{complaints: &tailWriter{limit: 4 << 10}, total: len(stale), waiting: map[string]bool{}}
	for _, pkg := range stale {
		o.waiting[pkg] = true
	}
	return o
}

func (o *buildOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = append(o.line, p...)
	for {
		line, rest, whole := bytes.Cut(o.line, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if pkg := string(line); o.waiting[pkg] {
			delete(o.waiting, pkg)
			o.last = pkg
		} else if _, err := fmt.Fprintf(o.complaints, "%s\n", line); err != nil {
			return 0, err
		}
		o.line = rest
	}
}

// The method left describes how much is left to compile, and the package that was started last.
func (o *buildOutput) left() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		return fmt.Sprintf("all %d packages compiled, linking", o.total)
	}
	text := fmt.Sprintf("%d of %d packages left", len(o.waiting), o.total)
	if o.last != "" {
		text += ", now " + o.last
	}
	return text
}

// String returns the output other than package paths.
func (o *buildOutput) String() string { return o.complaints.String() }
