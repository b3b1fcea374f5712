// Package remote lets a program on Linux use the OS interface of a Windows machine, whose keeper runs on the other end
// of a stream.
//
// Package wine is the client. The keeper, a Windows program, is the server. The package doesn't depend on Wine: it can
// serve any winos.Host on any stream. It supports services, files, environment, certificates and facts. Other functions
// of winos are only for programs on the machine itself.
package remote

import (
	"errors"
	"io/fs"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// object is the RPC name of the host.
const object = "Host"

// kinds are the errors that callers check for. The order is the same on both ends.
func kinds() []error {
	return []error{
		winos.ErrNotFound, winos.ErrInUse, winos.ErrInvalidName, winos.ErrNoSpace, winos.ErrStartFailed,
		winos.ErrDenied, winos.ErrUnsupported,
		fs.ErrNotExist, fs.ErrExist,
	}
}

// Failure is a transferred error: its text, and the index of its kind.
type Failure struct {
	Text  string
	Kinds []int
}

func failureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Text: err.Error()}
	for i, kind := range kinds() {
		if errors.Is(err, kind) {
			f.Kinds = append(f.Kinds, i)
		}
	}
	return f
}

// err returns the original error.
func (f *Failure) err() error {
	if f == nil {
		return nil
	}
	e := &remoteError{text: f.Text}
	for _, i := range f.Kinds {
		if all := kinds(); i >= 0 && i < len(all) {
			e.kinds = append(e.kinds, all[i])
		}
	}
	return e
}

// remoteError has the text and the kinds of the error on the machine.
type remoteError struct {
	text  string
	kinds []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.kinds }

// None is used for a missing argument or result.
type None bool

const none None = false

// Reply is a result or a failure.
type Reply[T any] struct {
	Value   T
	Failure *Failure
}

// NameValue is an environment variable.
type NameValue struct{ Name, Value string }

// Content is a file to write.
type Content struct {
	Path    string
	Content []byte
	Access  winos.Access
}

// Change is a file to rename, or a directory to create.
type Change struct {
	From, To string
	Access   winos.Access
}

// longest limits a call on the machine. The service manager gives a service 30 seconds for each step.
const longest = 2 * time.Minute
