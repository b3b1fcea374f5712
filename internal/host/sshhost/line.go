package sshhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"

	"github.com/pkg/sftp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

// Causes of a lost connection other than network errors.
var (
	errClosed       = errors.New("the connection is closed")
	errSessionEnded = errors.New("the host ended the session")
	errSilent       = errors.New("the host has sent nothing for too long")
)

// start runs work in a goroutine that Close waits for. If the connection is lost, it returns false instead.
func (c *conn) start(work func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return false
	}
	c.work.Go(work)
	return true
}

func (c *conn) Address() netip.Addr {
	reached, _ := netip.ParseAddrPort(c.wire.RemoteAddr().String()) // the zero Addr if it isn't an address
	return reached.Addr().Unmap().WithZone("")
}

// Err implements host.Conn. If the connection is lost, it returns a *contract.Problem with the reason ConnectionLost.
func (c *conn) Err() error {
	select {
	case <-c.gone:
		return c.lostWhile("using the connection")
	default:
		return nil
	}
}

// Close implements host.Conn. It returns when the connection's goroutines have ended. A repeated call does nothing.
func (c *conn) Close() error {
	c.lose(errClosed)
	c.work.Wait()
	return nil
}

// lose closes the connection and records the cause. If the connection is already lost, lose does nothing.
func (c *conn) lose(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	if cause == nil {
		cause = io.EOF
	}
	c.cause = cause
	// Close the wire first. This ends all pending operations, including a write that a silent peer never reads.
	_ = c.wire.Close()
	_ = c.client.Close()
	close(c.gone)
}

// lostWhile returns the problem of a lost connection. The text `doing` describes the operation that was in progress.
func (c *conn) lostWhile(doing string) *contract.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	cause := rootCause(c.cause)
	if errors.Is(cause, errFlood) {
		return contract.NewProblem(contract.ReasonOutputTooLarge, "%s on %s: %v", doing, c.address, cause)
	}
	if errors.Is(cause, io.EOF) {
		cause = errors.New("the host ended the connection")
	}
	return contract.NewProblem(contract.ReasonConnectionLost, "%s on %s: %v", doing, c.address, cause)
}

// The method `during` runs an operation that can't be cancelled. If ctx ends, it closes the connection.
func (c *conn) during(ctx context.Context, doing string, work func() error) error {
	if err := c.Err(); err != nil {
		return c.lostWhile(doing)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	stop := context.AfterFunc(ctx, func() { c.lose(context.Cause(ctx)) })
	defer stop()
	if err := work(); err != nil {
		return c.explain(ctx, doing, err)
	}
	return nil
}

// The method `briefly` does the same as `during`, with the time limit of a small step. Keepalives don't extend it.
func (c *conn) briefly(ctx context.Context, doing string, work func() error) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.SetupTimeout)
	defer cancel()
	return c.during(ctx, doing, work)
}

// explain classifies an error of the SSH or SFTP library: ctx ended, the connection broke, or the host refused.
func (c *conn) explain(ctx context.Context, doing string, err error) error {
	// The libraries may notice a broken connection before the keepalive does.
	if broken := c.wire.broken(); broken != nil {
		c.lose(broken)
	} else if isBreak(err) {
		c.lose(errSessionEnded)
	}
	select {
	case <-c.gone:
	default:
		if isStatus(err) {
			return contract.NewProblem(contract.ReasonFileFailed, "%s on %s: %s", doing, c.address,
				host.Printable(err.Error(), maxWords))
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	problem := c.lostWhile(doing)
	if ctx.Err() != nil {
		return interrupted(ctx, problem)
	}
	return problem
}

func isBreak(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, sftp.ErrSSHFxConnectionLost) || errors.Is(err, sftp.ErrSSHFxNoConnection) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed)
}

func isStatus(err error) bool {
	_, status := errors.AsType[*sftp.StatusError](err)
	return status || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)
}

// If a host sends no data for missedKeepalives keepalive intervals, its connection is lost.
const missedKeepalives = 4

// keepAlive sends a keepalive if the host is silent, and closes the connection if the host stays silent. Any data from
// the host ends the silence, so keepAlive never closes a busy connection.
func (c *conn) keepAlive() {
	interval := c.options.KeepaliveInterval
	ticker := c.options.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-c.gone:
			return
		case <-ticker.C():
		}
		switch silence := c.wire.silence(); {
		case silence > missedKeepalives*interval:
			c.lose(errSilent)
			return
		case silence >= interval:
			// Any answer is enough, even a refusal. The end of the connection ends the wait.
			c.start(func() { _ = c.ping() })
		}
	}
}

func (c *conn) ping() error {
	_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
	return err
}
