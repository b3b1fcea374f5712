package sshhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"sync"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

// line is the state of a connection that can break.
//
//	dialled ──▶ usable ──▶ lost: by the peer, by silence, by a context that ended during an SFTP request, or by Close
//
// SFTP can't cancel a single request. So to give up a request, line closes the connection, which ends all
// pending operations. The first cause of the loss is the one that is reported.
type line struct {
	client  *ssh.Client
	wire    *wire
	address string
	options Options

	work sync.WaitGroup
	gone chan struct{}

	mu    sync.Mutex
	cause error
}

// Causes of a lost connection other than network errors.
var (
	errClosed       = errors.New("the connection is closed")
	errSessionEnded = errors.New("the host ended the session")
	errSilent       = errors.New("nothing was heard of the host for too long")
)

func newLine(client *ssh.Client, w *wire, address string, o Options) *line {
	l := &line{client: client, wire: w, address: address, options: o, gone: make(chan struct{})}
	l.start(func() {
		err := client.Wait()
		if broken := w.broken(); broken != nil {
			err = broken
		}
		l.lose(err)
	})
	l.start(l.keepAlive)
	return l
}

// start runs work in a goroutine that Close waits for. It returns false if the connection is gone.
func (l *line) start(work func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return false
	}
	l.work.Go(work)
	return true
}

// Address implements host.Locator.
func (l *line) Address() netip.Addr {
	reached, _ := netip.ParseAddrPort(l.wire.RemoteAddr().String()) // the zero Addr if it isn't an address
	return reached.Addr().Unmap().WithZone("")
}

// Err implements host.Conn. It returns a *contract.Problem ConnectionLost if the connection is gone.
func (l *line) Err() error {
	select {
	case <-l.gone:
		return l.lostWhile("using the connection")
	default:
		return nil
	}
}

// Close implements host.Conn. It returns when all goroutines of the connection have ended. A repeated call
// does nothing.
func (l *line) Close() error {
	l.lose(errClosed)
	l.work.Wait()
	return nil
}

// lose ends the connection. Only the first cause counts.
func (l *line) lose(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	if cause == nil {
		cause = io.EOF
	}
	l.cause = cause
	// Close the wire first. It ends all pending operations, including a write that a silent peer never reads.
	_ = l.wire.Close()
	_ = l.client.Close()
	close(l.gone)
}

// lostWhile returns a problem that says that the connection is gone, and during which operation.
func (l *line) lostWhile(doing string) *contract.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	cause := rootCause(l.cause)
	if errors.Is(cause, errFlood) {
		return contract.NewProblem(contract.ReasonOutputTooLarge, "%s on %s: %v", doing, l.address, cause)
	}
	if errors.Is(cause, io.EOF) {
		cause = errors.New("the host ended the connection")
	}
	return contract.NewProblem(contract.ReasonConnectionLost, "%s on %s: %v", doing, l.address, cause)
}

// during runs an operation that only the end of the connection can interrupt. If ctx ends first, the
// connection is closed.
func (l *line) during(ctx context.Context, doing string, work func() error) error {
	if err := l.Err(); err != nil {
		return l.lostWhile(doing)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	stop := context.AfterFunc(ctx, func() { l.lose(context.Cause(ctx)) })
	defer stop()
	if err := work(); err != nil {
		return l.explain(ctx, doing, err)
	}
	return nil
}

// briefly runs an operation within the time limit of a small step. Keepalives don't extend it.
func (l *line) briefly(ctx context.Context, doing string, work func() error) error {
	ctx, cancel := context.WithTimeout(ctx, l.options.SetupTimeout)
	defer cancel()
	return l.during(ctx, doing, work)
}

// explain classifies an error of the SSH or SFTP library: ctx ended, the connection broke, or the host
// refused.
func (l *line) explain(ctx context.Context, doing string, err error) error {
	// The libraries may notice a broken connection before the keepalive does.
	if broken := l.wire.broken(); broken != nil {
		l.lose(broken)
	} else if isBreak(err) {
		l.lose(errSessionEnded)
	}
	select {
	case <-l.gone:
	default:
		if isStatus(err) {
			return contract.NewProblem(contract.ReasonFileFailed, "%s on %s: %s", doing, l.address,
				host.Printable(err.Error(), maxWords))
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	problem := l.lostWhile(doing)
	if ctx.Err() != nil {
		return interrupted(ctx, problem)
	}
	return problem
}

// isBreak reports whether an error means that the peer is gone.
func isBreak(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, sftp.ErrSSHFxConnectionLost) || errors.Is(err, sftp.ErrSSHFxNoConnection) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed)
}

// isStatus reports whether an error is a refusal by the host's SFTP server.
func isStatus(err error) bool {
	_, status := errors.AsType[*sftp.StatusError](err)
	return status || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)
}

// missedKeepalives is how many silent intervals make a peer dead.
const missedKeepalives = 4

// keepAlive sends a keepalive if the host is silent, and closes the connection if no answer comes. Any data
// from the host counts, so that a busy connection is never considered dead.
func (l *line) keepAlive() {
	interval := l.options.KeepaliveInterval
	ticker := l.options.Clock.NewTicker(interval)
	defer ticker.Stop()
	questions := make(chan struct{}, 1)
	l.start(func() { l.ask(questions) })
	for {
		select {
		case <-l.gone:
			return
		case <-ticker.C():
		}
		silence := l.wire.silence()
		if silence > missedKeepalives*interval {
			l.lose(errSilent)
			return
		}
		if silence < interval {
			continue
		}
		select {
		case questions <- struct{}{}:
		default: // a keepalive is queued already
		}
	}
}

// ask sends one keepalive per question, one after the other, until the connection is gone.
func (l *line) ask(questions <-chan struct{}) {
	for {
		select {
		case <-l.gone:
			return
		case <-questions:
			// Any answer is enough, even a refusal. The end of the connection ends the wait.
			_, _, _ = l.client.SendRequest("keepalive@openssh.com", true, nil)
		}
	}
}
