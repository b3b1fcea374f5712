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
type Channel struct {
	// Request reads the request and deletes it, so that a second call can't read the same request.
	Request func() ([]byte, error)
	// Answer writes the answer. It replaces the answer of an earlier call.
	Answer func(content []byte) error
}

// Serve handles one call: it decodes the request, calls `run`, and writes the answer. If `run` returns an error, the
// answer contains the Problem and the result. Serve returns an error only if it can't read or decode the request, or
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

// RPCDir returns the channel of the call with this id: two files in the RPC directory, for the request and for the
// answer. Only administrators can read the answer. home is the directory that contains the RPC directory.
func RPCDir(files winos.Files, home, id string) (Channel, error) {
	if !contract.IsCallID(id) {
		return Channel{}, fmt.Errorf("%.40q can't name a call: letters, digits and hyphens only, at most 64", id)
	}
	if home == "" {
		return Channel{}, errors.New("the home directory, which contains the RPC directory, is unknown")
	}
	request := RPCPath(home) + `\` + contract.RequestName(id)
	return Channel{
		Request: func() (content []byte, err error) {
			err = winos.UntilClosed(nil, func() error {
				content, err = winos.ReadFile(files, request)
				return err
			})
			return content, errors.Join(err, winos.RemoveClosed(files, request))
		},
		Answer: func(content []byte) error {
			return winos.WriteFile(files, RPCPath(home)+`\`+contract.AnswerName(id), bytes.NewReader(content),
				winos.AccessAdministrators)
		},
	}, nil
}

// RPCPath returns the path of the RPC directory in a home directory.
func RPCPath(home string) string {
	return strings.TrimRight(home, `\`) + `\` + contract.RPCDir
}

// Streams returns a channel that uses the standard streams.
func Streams(in io.Reader, out io.Writer) Channel {
	return Channel{
		Request: func() ([]byte, error) { return io.ReadAll(in) },
		Answer: func(content []byte) error {
			_, err := out.Write(content)
			return err
		},
	}
}
