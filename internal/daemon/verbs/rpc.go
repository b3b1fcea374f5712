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

// Channel is where one call's request comes from and its answer goes to.
type Channel interface {
	// Request reads the request, after which it is nowhere any more. A second call has nothing to
	// read.
	Request() ([]byte, error)
	// Answer leaves the answer, replacing an earlier one.
	Answer(content []byte) error
}

// Serve runs one call: it decodes the request, runs the verb, and leaves its answer. A verb's error
// becomes the answer's Problem, with whatever result there is; Serve's own error says that there is
// no answer.
func Serve[Request, Result any](ctx context.Context, c Channel,
	run func(ctx context.Context, request Request) (Result, error)) error {
	content, err := c.Request()
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	var request Request
	// Nothing at all is the empty request, for people who just want to look.
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
		return fmt.Errorf("leaving the answer: %w", err)
	}
	return nil
}

// RPCDir is a Channel of two files in the RPC directory.
type RPCDir struct {
	files winos.Files
	path  string
	id    string
}

var (
	_ Channel = (*RPCDir)(nil)
	_ Channel = Streams{}
)

// NewRPCDir gives the channel of call id, below the user's home.
func NewRPCDir(files winos.Files, home, id string) (*RPCDir, error) {
	if !legalID(id) {
		return nil, fmt.Errorf("%.40q can't name a call: letters, digits and hyphens only, at most 64", id)
	}
	if home == "" {
		return nil, errors.New("the home directory is not known, so neither is the RPC directory")
	}
	return &RPCDir{files: files, path: RPCPath(home), id: id}, nil
}

// RPCPath is the RPC directory below a home.
func RPCPath(home string) string {
	return strings.TrimRight(home, `\`) + `\` + contract.RPCDir
}

func legalID(id string) bool {
	return id != "" && len(id) <= 64 && strings.Trim(id,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

// Request reads the request's file and deletes it.
func (d *RPCDir) Request() ([]byte, error) {
	path := d.path + `\` + contract.RequestName(d.id)
	var content []byte
	err := winos.UntilClosed(nil, func() (err error) { content, err = winos.ReadFile(d.files, path); return err })
	return content, errors.Join(err, winos.RemoveClosed(d.files, path))
}

// Answer writes the answer's file, at once and only for Administrators.
func (d *RPCDir) Answer(content []byte) error {
	return winos.WriteFile(d.files, d.path+`\`+contract.AnswerName(d.id), bytes.NewReader(content),
		winos.AccessAdministrators)
}

// Streams is a Channel of the standard streams.
type Streams struct {
	In  io.Reader
	Out io.Writer
}

// Request reads until the end of In; none gives an empty request.
func (s Streams) Request() ([]byte, error) {
	if s.In == nil {
		return nil, nil
	}
	return io.ReadAll(s.In)
}

// Answer writes to Out.
func (s Streams) Answer(content []byte) error {
	_, err := s.Out.Write(content)
	return err
}
