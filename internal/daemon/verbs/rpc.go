package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Channel transports the request and the answer of one call.
type Channel interface {
	// Request reads the request and deletes it, so that a second call can't read the same request.
	Request() ([]byte, error)
	// Answer writes the answer. It replaces the answer of an earlier call.
	Answer(content []byte) error
}

// Serve runs one call: it decodes the request, calls run, and writes the answer. If run fails, the answer contains the
// Problem and the result that run returned. Serve returns an error only if it can't read or decode the request, or
// can't write the answer.
func Serve[Request, Result any](ctx context.Context, c Channel,
	run func(ctx context.Context, request Request) (Result, error)) error {
	content, err := c.Request()
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	var request Request
	// Accept empty input as an empty request, so that a person can run a verb by hand.
	if len(bytes.TrimSpace(content)) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.DisallowUnknownFields()
		if err = decoder.Decode(&request); err != nil {
			return fmt.Errorf("decoding the request: %w", err)
		}
	}
	var answer contract.Answer[Result]
	if answer.Result, err = run(ctx, request); err != nil {
		p, ok := contract.AsProblem(err)
		if !ok {
			p = contract.NewProblem(contract.ReasonInternal, "%v", err)
		}
		answer.Problem = p
	}
	if content, err = json.Marshal(answer); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if err = c.Answer(append(content, '\n')); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// RPCDir is a Channel that uses two files in the RPC directory: one for the request and one for the answer.
type RPCDir struct {
	files winos.Files
	path  string
	id    string
}

var (
	_ Channel = (*RPCDir)(nil)
	_ Channel = Streams{}
)

// NewRPCDir returns the channel of the call with this id. home is the directory that contains the RPC directory.
func NewRPCDir(files winos.Files, home, id string) (*RPCDir, error) {
	if !contract.IsCallID(id) {
		return nil, fmt.Errorf("%.40q can't name a call: letters, digits and hyphens only, at most 64", id)
	}
	if home == "" {
		return nil, errors.New("the home directory, which contains the RPC directory, is unknown")
	}
	return &RPCDir{files: files, path: RPCPath(home), id: id}, nil
}

// RPCPath returns the path of the RPC directory in a home directory.
func RPCPath(home string) string {
	return strings.TrimRight(home, `\`) + `\` + contract.RPCDir
}

// Request reads the request's file and deletes it.
func (d *RPCDir) Request() ([]byte, error) {
	path := d.path + `\` + contract.RequestName(d.id)
	var content []byte
	err := winos.UntilClosed(nil, func() (err error) { content, err = winos.ReadFile(d.files, path); return err })
	return content, errors.Join(err, winos.RemoveClosed(d.files, path))
}

// Answer writes the file of the answer atomically. Only administrators can read the file.
func (d *RPCDir) Answer(content []byte) error {
	return winos.WriteFile(d.files, d.path+`\`+contract.AnswerName(d.id), bytes.NewReader(content),
		winos.AccessAdministrators)
}

// Streams is a Channel that uses the standard streams.
type Streams struct {
	In  io.Reader
	Out io.Writer
}

// Request reads In until its end.
func (s Streams) Request() ([]byte, error) { return io.ReadAll(s.In) }

// Answer writes to Out.
func (s Streams) Answer(content []byte) error {
	_, err := s.Out.Write(content)
	return err
}
