package sshhost

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	// maxAnswer limits an answer, in bytes. The longest answer of an honest host lists a few hundred paths.
	maxAnswer = 1 << 20
	// endingGrace is the time limit for the end of a command that is given up, and for the cleanup after a command.
	endingGrace = 5 * time.Second
)

// Call implements host.Conn. If there is no answer although the connection still works, the error is a
// *contract.Problem with the reason DaemonCallFailed.
func (c *conn) Call(ctx context.Context, verb contract.Verb, request []byte) (answer []byte, err error) {
	doing := "calling " + string(verb)
	if c.uploaded == "" {
		return nil, fmt.Errorf("%s: no daemon is uploaded", doing)
	}
	limit := c.options.CallTimeout(verb)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err = c.rpc(bounded, doing, verb, request)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = contract.NewProblem(contract.ReasonDaemonCallFailed, "%s on %s: no answer within %s", doing, c.address,
			limit)
	}
	if verb == contract.VerbPreflight {
		c.doubt(ctx, answer, err)
	}
	return answer, err
}

// rpc writes the request, runs the daemon and returns the raw answer. Then, if the connection still works, it deletes
// the request and the answer from the host.
func (c *conn) rpc(ctx context.Context, doing string, verb contract.Verb, body []byte) (raw []byte, err error) {
	files, err := c.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	id := newID()
	defer c.forget(ctx, id)
	err = c.during(ctx, doing, func() error {
		_, err := put(files, contract.RequestName(id), bytes.NewReader(body))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err = c.run(ctx, doing, c.commandLine(verb, id), body); err != nil {
		return nil, err
	}
	if files, err = c.session(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var useless string
	err = c.during(ctx, doing, func() error {
		raw, err = fetch(files, contract.AnswerName(id), maxAnswer)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			useless = "it ended well and left no answer"
		case errors.Is(err, errAnswerTooLong):
			useless = errAnswerTooLong.Error()
		default:
			return err
		}
		return nil
	})
	if err == nil && useless != "" {
		err = contract.NewProblem(contract.ReasonDaemonCallFailed, "%s on %s: %s", doing, c.address, useless)
	}
	return raw, err
}

func newID() string {
	id := make([]byte, 16)
	// Read of crypto/rand never fails.
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}

// commandLine returns a command that cmd.exe and PowerShell parse alike: a program and three plain words.
func (c *conn) commandLine(verb contract.Verb, id string) string {
	return strings.Join([]string{contract.RPCDir + `\` + c.uploaded, string(verb), "--rpc", id}, " ")
}

// forget deletes the answer, and the request if it still exists. Because the files may contain secrets, forget must
// delete them even if ctx has ended. So forget has its own timeout. If forget fails, the answer is still valid, and the
// next connection deletes the files.
func (c *conn) forget(ctx context.Context, id string) {
	if c.Err() != nil {
		return
	}
	log := logr.FromContextOrDiscard(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endingGrace)
	defer cancel()
	files, err := c.session(ctx)
	if err == nil {
		err = c.during(ctx, "removing request and answer", func() error {
			done := make(chan error)
			go func() { done <- remove(files, contract.RequestName(id)) }()
			err := remove(files, contract.AnswerName(id))
			return errors.Join(<-done, err)
		})
	}
	if err != nil {
		log.Info("a request or its answer stays on the host until the next connection", "address", c.address, "cause",
			err.Error())
	}
}

// run runs a command line and waits for its end. body is the request, which errors must not contain.
func (c *conn) run(ctx context.Context, doing, line string, body []byte) error {
	session, err := c.command(ctx, doing)
	if err != nil {
		return err
	}
	said := &tail{}
	session.Stderr = said
	ended := make(chan struct{})
	if !c.start(func() { err = session.Run(line); close(ended) }) {
		return c.lostWhile(doing)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		c.abandon(session, ended)
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	_ = session.Close() // if the command did not start, the session is still open
	return c.outcome(ctx, doing, err, said, body)
}

// abandon ends a command that takes too long: it closes the session and, after endingGrace, the connection.
func (c *conn) abandon(session *ssh.Session, ended <-chan struct{}) {
	closing := make(chan struct{})
	if !c.start(func() { _ = session.Close(); close(closing) }) {
		return
	}
	grace := time.NewTimer(endingGrace)
	defer grace.Stop()
	for range 2 {
		select {
		case <-ended:
			ended = nil
		case <-closing:
			closing = nil
		case <-grace.C:
			c.lose(errors.New("a command does not end"))
			return
		}
	}
}

// outcome returns an error if a command failed. `err` is the result of its session, and `said` is its output.
func (c *conn) outcome(ctx context.Context, doing string, err error, said *tail, body []byte) error {
	if err == nil {
		return nil
	}
	if exit, is := errors.AsType[*ssh.ExitError](err); is {
		detail := fmt.Sprintf("%s on %s: exit code %d", doing, c.address, exit.ExitStatus())
		if words := redact(said.String(), body); words != "" {
			detail += ": " + words
		}
		return contract.NewProblem(contract.ReasonDaemonCallFailed, "%s", detail)
	}
	// Without an exit code, the host refused the command, or the session or the whole connection broke.
	if isBreak(err) || c.wire.broken() != nil || c.Err() != nil {
		return c.explain(ctx, doing, err)
	}
	if _, killed := errors.AsType[*ssh.ExitMissingError](err); killed {
		return c.vanished(ctx, doing)
	}
	return contract.NewProblem(contract.ReasonDaemonCallFailed, "%s on %s: the host does not run it", doing, c.address)
}

// The method `vanished` returns the error for a command that ended without an exit code. It sends a keepalive to find
// out whether only the command was killed, or the connection is about to break, for example because of a reboot.
func (c *conn) vanished(ctx context.Context, doing string) error {
	ctx, cancel := context.WithTimeout(ctx, endingGrace)
	defer cancel()
	if err := c.during(ctx, doing, c.ping); err != nil {
		return err
	}
	return contract.NewProblem(contract.ReasonDaemonCallFailed, "%s on %s: it was killed", doing, c.address)
}
