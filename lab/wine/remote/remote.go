// Package remote answers how a program on Linux uses the OS interface of a Windows machine whose
// keeper runs at the other end of a stream.
//
// Package wine is the client; the keeper, a Windows program, serves. It knows nothing of Wine: any
// winos.Host can be served, and any stream will do. It carries services, files, environment,
// certificates and facts; what else winos has is for programs on the machine itself.
package remote

import (
	"errors"
	"io/fs"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// object is the name under which the host is served.
const object = "Host"

// kinds are the errors on which callers decide, in an order that both ends share.
func kinds() []error {
	return []error{
		winos.ErrNotFound, winos.ErrInUse, winos.ErrInvalidName, winos.ErrNoSpace, winos.ErrStartFailed,
		winos.ErrDenied, winos.ErrUnsupported,
		fs.ErrNotExist, fs.ErrExist,
	}
}

// Failure is an error on its way: what it says, and which of the known kinds it is.
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

// err is the error at the other end.
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

// remoteError reads as the error on the machine, and is of the same kinds.
type remoteError struct {
	text  string
	kinds []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.kinds }

// None stands for no argument or no result.
type None bool

const none None = false

// Reply is a result or a failure.
type Reply[T any] struct {
	Value   T
	Failure *Failure
}

// NameValue is one variable.
type NameValue struct{ Name, Value string }

// Content is a file to write.
type Content struct {
	Path    string
	Content []byte
	Access  winos.Access
}

// Change is a file to rename, or a directory to make.
type Change struct {
	From, To string
	Access   winos.Access
}

// longest bounds a call on the machine itself: the service manager gives a service 30 seconds for
// each step.
const longest = 2 * time.Minute
