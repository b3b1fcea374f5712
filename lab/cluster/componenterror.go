package cluster

import (
	"fmt"
	"strings"
)

// ComponentError says that a program of the control plane ended, or never became
// healthy, without having been asked to end.
type ComponentError struct {
	// Component is the program's name.
	Component string
	// What happened to it, as the end of a sentence: "ended: exit status 1".
	What string
	// Log is the file with its output; it is gone once the cluster is stopped,
	// unless the data directory is kept.
	Log string
	// Tail holds the last lines of that file.
	Tail []string
	// Fix is what to do about it.
	Fix string

	portTaken bool
}

// Error has the whole story, as it may be all that is left after the data
// directory is removed.
func (e *ComponentError) Error() string {
	tail := "(it wrote nothing)"
	if len(e.Tail) > 0 {
		tail = strings.Join(e.Tail, "\n\t")
	}
	return fmt.Sprintf("%s %s; the last lines of %s:\n\t%s\nto fix it: %s", e.Component, e.What, e.Log, tail, e.Fix)
}

// explain makes the error for a component from what its log says.
func explain(c component, what string) *ComponentError {
	tail, err := lastLines(c.log, 20)
	if err != nil {
		tail = []string{fmt.Sprintf("(reading the log: %v)", err)}
	}
	e := &ComponentError{Component: c.name, What: what, Log: c.log, Tail: tail}
	e.Fix, e.portTaken = diagnose(strings.Join(tail, "\n"))
	return e
}

// diagnose reads the end of a component's log. This is the one place where their
// text is matched; the texts are those of Go's syscall package and of pflag.
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
