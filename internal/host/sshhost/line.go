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
)

// line is a connection as something that breaks.
//
//	dialled ──▶ usable ──▶ lost: by the peer, by silence, by a context that ended in the middle of SFTP, or by Close
//
// SFTP has no way to give up a single request, so giving up means closing the connection, which
// ends every wait at once. Whoever loses the connection first says why.
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

// Why a connection is gone, when it is not an error of the network.
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

// start runs work in a goroutine that Close waits for. It answers false when the connection is
// gone.
func (l *line) start(work func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return false
	}
	l.work.Go(work)
	return true
}

// Address is host.Locator.
func (l *line) Address() netip.Addr {
	reached, _ := netip.ParseAddrPort(l.wire.RemoteAddr().String()) // what is no address is none
	return reached.Addr().Unmap().WithZone("")
}

// Err is host.Conn. It is a *contract.Problem ConnectionLost once the connection is gone.
func (l *line) Err() error {
	select {
	case <-l.gone:
		return l.lostWhile("using the connection")
	default:
		return nil
	}
}

// Close is host.Conn. It returns when nothing of the connection runs any more; a repeated call does
// nothing.
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
	// The wire first: it ends every wait, also that of a write that a silent peer never takes.
	_ = l.wire.Close()
	_ = l.client.Close()
	close(l.gone)
}

// lostWhile says that the connection is gone, and what was being done.
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

// during does work that only the end of the connection can interrupt. When ctx ends first, the
// connection is given up.
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

// briefly does work that is done within the time of a small step: signs of life don't prolong it.
func (l *line) briefly(ctx context.Context, doing string, work func() error) error {
	ctx, cancel := context.WithTimeout(ctx, l.options.SetupTimeout)
	defer cancel()
	return l.during(ctx, doing, work)
}

// explain says what an error of the SSH or SFTP library means: that ctx ended, that the connection
// broke, or what the host answered.
func (l *line) explain(ctx context.Context, doing string, err error) error {
	// The libraries may know that something broke before whoever watches the connection does.
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
				printable(err.Error(), maxWords))
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	problem := l.lostWhile(doing)
	if ctx.Err() != nil {
		return interrupted(ctx, problem)
	}
	return problem
}

// isBreak says whether an error means that the other side is gone.
func isBreak(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, sftp.ErrSSHFxConnectionLost) || errors.Is(err, sftp.ErrSSHFxNoConnection) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed)
}

// isStatus says whether an error is how the host's SFTP server says no.
func isStatus(err error) bool {
	_, status := errors.AsType[*sftp.StatusError](err)
	return status || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)
}

// missedKeepalives is how many intervals of silence make a peer dead.
const missedKeepalives = 4

// keepAlive asks for a sign of life when nothing is heard, and gives the connection up when none
// comes. Whatever the host sends counts, so that a busy line is never mistaken for a dead one.
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
		default: // one waits to be asked already
		}
	}
}

// ask asks the host for a sign of life at each question, one after the other, until the connection is gone.
func (l *line) ask(questions <-chan struct{}) {
	for {
		select {
		case <-l.gone:
			return
		case <-questions:
			// Any answer will do, a refusal, too. The end of the connection ends the wait for it.
			_, _, _ = l.client.SendRequest("keepalive@openssh.com", true, nil)
		}
	}
}
