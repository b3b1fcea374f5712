package cluster

import (
	"fmt"
	"strings"
)

// ComponentError reports that a program of the control plane ended unexpectedly or didn't become healthy.
type ComponentError struct {
	// Component is the name of the program.
	Component string
	// The field What describes the failure, as the end of a sentence: "ended: exit status 1".
	What string
	// Log is the file with the output. It is deleted when the cluster is stopped, unless the data directory is kept.
	Log string
	// Tail contains the last lines of the log.
	Tail []string
	// Fix describes how to fix the problem.
	Fix string

	portTaken bool
}

// Error contains all details, because the data directory may be removed.
func (e *ComponentError) Error() string {
	tail := "(it wrote nothing)"
	if len(e.Tail) > 0 {
		tail = strings.Join(e.Tail, "\n\t")
	}
	return fmt.Sprintf("%s %s; the last lines of %s:\n\t%s\nto fix it: %s", e.Component, e.What, e.Log, tail, e.Fix)
}

// explain creates the error of a component from its log.
func explain(c component, what string) *ComponentError {
	tail, err := lastLines(c.log, 20)
	if err != nil {
		tail = []string{fmt.Sprintf("(reading the log: %v)", err)}
	}
	e := &ComponentError{Component: c.name, What: what, Log: c.log, Tail: tail}
	e.Fix, e.portTaken = diagnose(strings.Join(tail, "\n"))
	return e
}

// diagnose reads the end of the log of a component. Only this function matches the text of logs. The texts come
// from Go's package syscall and from pflag.
func diagnose(log string) (fix string, portTaken bool) {
	for _, known := range []struct{ text, fix string }{
		{"address already in use", "another program took the port between its choice and its use; start again"},
		{"no space left on device", "free some space where the data directory lies, or set TMPDIR to a disk that " +
			"has some"},
		{"too many open files", "raise the limit of open files (ulimit -n 8192)"},
		{"cannot allocate memory", "free some memory: the control plane needs about 1 GiB"},
		{"unknown flag", "the pinned Kubernetes version dropped a flag: adjust the arguments in lab/cluster"},
		{"permission denied", "make the data directory writable for this user, or choose another"},
	} {
		if strings.Contains(log, known.text) {
			return known.fix, known.text == "address already in use"
		}
	}
	return "read its log (Options.Keep keeps it after the end); if the machine is merely slow or busy, raise " +
		"Options.StartTimeout", false
}
