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

// conn is one connection.
//
//	dialled ──▶ usable ──▶ lost: by the peer, by silence, by a context that ended in the middle of SFTP, or by Close
//
// SFTP has no way to give up a single request, so giving up means closing the connection, which
// ends every wait at once. Whoever loses the connection first says why.
type conn struct {
	client  *ssh.Client
	wire    *wire
	address string
	hostKey string
	options Options
	// announced are the host keys that the host says it has.
	announced *announcement

	// files is the one SFTP session, opened at the first need. single says that the server allows
	// no other session beside it, so that it ends before each command.
	files  *sftp.Client
	single bool
	// tidied says that the exchange directory is there and in order.
	tidied bool
	// planted is the name of the planted daemon; empty before Plant.
	planted string
	// patched says that it was sent in parts, by more than one connection.
	patched bool

	work sync.WaitGroup
	gone chan struct{}

	mu    sync.Mutex
	cause error
}

var (
	_ host.Conn    = (*conn)(nil)
	_ host.Prover  = (*conn)(nil)
	_ host.Locator = (*conn)(nil)
)

// Why a connection is gone, when it is not an error of the network.
var (
	errClosed       = errors.New("the connection is closed")
	errSessionEnded = errors.New("the host ended the session")
	errSilent       = errors.New("nothing was heard of the host for too long")
)

func newConn(client *ssh.Client, announced *announcement, w *wire, address, hostKey string, o Options) *conn {
	c := &conn{client: client, announced: announced, wire: w, address: address, hostKey: hostKey, options: o,
		gone: make(chan struct{})}
	c.start(func() {
		err := client.Wait()
		if broken := w.broken(); broken != nil {
			err = broken
		}
		c.lose(err)
	})
	c.start(c.keepAlive)
	return c
}

// start runs work in a goroutine that Close waits for. It answers false when the connection is
// gone.
func (c *conn) start(work func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return false
	}
	c.work.Go(work)
	return true
}

// HostKey is host.Conn.
func (c *conn) HostKey() string { return c.hostKey }

// Address is host.Locator.
func (c *conn) Address() netip.Addr {
	reached, _ := netip.ParseAddrPort(c.wire.RemoteAddr().String()) // what is no address is none
	return reached.Addr().Unmap().WithZone("")
}

// Err is host.Conn. It is a *contract.Problem ConnectionLost once the connection is gone.
func (c *conn) Err() error {
	select {
	case <-c.gone:
		return c.lostWhile("using the connection")
	default:
		return nil
	}
}

// Close is host.Conn. It returns when nothing of the connection runs any more; a repeated call does
// nothing.
func (c *conn) Close() error {
	c.lose(errClosed)
	c.work.Wait()
	return nil
}

// lose ends the connection. Only the first cause counts.
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
	// The wire first: it ends every wait, also that of a write that a silent peer never takes.
	_ = c.wire.Close()
	_ = c.client.Close()
	close(c.gone)
}

// lostWhile says that the connection is gone, and what was being done.
func (c *conn) lostWhile(doing string) *contract.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	cause := rootCause(c.cause)
	if errors.Is(cause, errFlood) {
		return contract.NewProblem(contract.ReasonHostFloods, "%s on %s: %v", doing, c.address, cause)
	}
	if errors.Is(cause, io.EOF) {
		cause = errors.New("the host ended the connection")
	}
	return contract.NewProblem(contract.ReasonConnectionLost, "%s on %s: %v", doing, c.address, cause)
}

// during does work that only the end of the connection can interrupt. When ctx ends first, the
// connection is given up.
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

// briefly does work that is done within the time of a small step: signs of life don't prolong it.
func (c *conn) briefly(ctx context.Context, doing string, work func() error) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.SetupTimeout)
	defer cancel()
	return c.during(ctx, doing, work)
}

// explain says what an error of the SSH or SFTP library means: that ctx ended, that the connection
// broke, or what the host answered.
func (c *conn) explain(ctx context.Context, doing string, err error) error {
	// The libraries may know that something broke before whoever watches the connection does.
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
				printable(err.Error(), maxWords))
		}
		return fmt.Errorf("%s: %w", doing, err)
	}
	problem := c.lostWhile(doing)
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
func (c *conn) keepAlive() {
	interval := c.options.KeepaliveInterval
	ticker := c.options.Clock.NewTicker(interval)
	defer ticker.Stop()
	asking := make(chan struct{}, 1)
	for {
		select {
		case <-c.gone:
			return
		case <-ticker.C():
		}
		silence := c.wire.silence()
		if silence > missedKeepalives*interval {
			c.lose(errSilent)
			return
		}
		if silence < interval {
			continue
		}
		select {
		case asking <- struct{}{}:
			c.start(func() {
				// Any answer will do, a refusal, too.
				_, _, _ = c.client.SendRequest("keepalive@openssh.com", true, nil)
				<-asking
			})
		default: // the last question waits still
		}
	}
}
