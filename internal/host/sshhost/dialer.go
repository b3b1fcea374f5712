package sshhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

// Options are the options of a Dialer. If a field has the zero value, its default applies.
type Options struct {
	// ConnectTimeout is the time limit for opening the TCP connection. Default: 10 s.
	ConnectTimeout time.Duration
	// HandshakeTimeout limits the time from the TCP connection to a successful login. Default: 20 s, because a busy
	// Windows host takes a few seconds to start the process that checks a key.
	HandshakeTimeout time.Duration
	// SetupTimeout limits the start of SFTP, and each small SFTP operation outside of a call. Default: 30 s.
	SetupTimeout time.Duration
	// If the host sends nothing for KeepaliveInterval, the connection sends it a keepalive. If the host sends nothing
	// for four intervals, the connection is lost. Default: 15 s, so a dead host is detected within a minute.
	KeepaliveInterval time.Duration
	// CallTimeout limits one call of a verb, including its file transfers. Default: host.CallTimeout.
	CallTimeout func(verb contract.Verb) time.Duration
	// Network opens TCP connections. Default: net.Dialer with TCP keepalive.
	Network func(ctx context.Context, network, address string) (net.Conn, error)
	// Clock measures how long a host is silent. Default: the real clock.
	Clock clock.WithTicker
}

// Dialer opens SSH connections. It has no state and may be used concurrently.
type Dialer struct {
	options Options
}

var _ host.Dialer = (*Dialer)(nil)

const keepaliveInterval = 15 * time.Second

// New returns a dialer.
func New(o Options) *Dialer {
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 10*time.Second)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 20*time.Second)
	o.SetupTimeout = cmp.Or(o.SetupTimeout, 30*time.Second)
	o.KeepaliveInterval = cmp.Or(o.KeepaliveInterval, keepaliveInterval)
	if o.CallTimeout == nil {
		o.CallTimeout = host.CallTimeout
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Network == nil {
		keepalive := net.KeepAliveConfig{Enable: true, Idle: o.KeepaliveInterval, Interval: o.KeepaliveInterval,
			Count: missedKeepalives}
		o.Network = (&net.Dialer{KeepAliveConfig: keepalive}).DialContext
	}
	return &Dialer{options: o}
}

// Dial implements host.Dialer. If the private key can't be used, the reason of the problem is PrivateKeyInvalid. If ctx
// is cancelled, Dial returns ctx's error. If the deadline of ctx passes, the error wraps the problem and ctx's error.
func (d *Dialer) Dial(ctx context.Context, target host.Target) (host.Conn, error) {
	address := net.JoinHostPort(target.Address, strconv.Itoa(cmp.Or(target.Port, contract.SSHPort)))
	signer, err := parseSigner(target.PrivateKey)
	if err != nil {
		return nil, err
	}
	check, err := newHostKeyCheck(target.HostKey)
	if err != nil {
		return nil, contract.NewProblem(contract.ReasonHostKeyMismatch, "the host key expected of %s can't be read: %v",
			address, err)
	}
	w, err := d.connect(ctx, address)
	if err != nil {
		return nil, err
	}
	client, announcement, err := d.handshake(ctx, w, address, check, &ssh.ClientConfig{
		User:              target.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   check.callback,
		HostKeyAlgorithms: check.algorithms(),
	})
	if err != nil {
		return nil, err
	}
	c := &conn{client: client, wire: w, address: address, hostKey: authorizedLine(check.seen()), options: d.options,
		announcement: announcement, gone: make(chan struct{})}
	c.watch()
	return c, nil
}

func (d *Dialer) connect(ctx context.Context, address string) (*wire, error) {
	bounded, cancel := context.WithTimeout(ctx, d.options.ConnectTimeout)
	defer cancel()
	tcp, err := d.options.Network(bounded, "tcp4", address)
	if err == nil {
		return newWire(tcp, d.options.Clock), nil
	}
	_, lookup := errors.AsType[*net.DNSError](err)
	_, family := errors.AsType[*net.AddrError](err)
	if (lookup || family) && ctx.Err() == nil {
		return nil, contract.NewProblem(contract.ReasonAddressUnresolvable,
			"connecting to %s: the name has no IPv4 address", address)
	}
	if bounded.Err() != nil {
		return nil, interrupted(ctx, contract.NewProblem(contract.ReasonUnreachable,
			"connecting to %s: no answer in time", address))
	}
	return nil, contract.NewProblem(contract.ReasonUnreachable, "connecting to %s: %v", address, rootCause(err))
}

// handshake does the SSH handshake and the login. If it fails, it closes the wire.
func (d *Dialer) handshake(
	ctx context.Context, w *wire, address string, check *hostKeyCheck, config *ssh.ClientConfig,
) (*ssh.Client, announcement, error) {
	deadline := time.Now().Add(d.options.HandshakeTimeout)
	// If ctx ends, Close ends a blocked handshake. If only the time is over, SetDeadline ends the handshake.
	stop := context.AfterFunc(ctx, func() { _ = w.Close() })
	defer stop()
	err := w.SetDeadline(deadline)
	if err == nil {
		var conn ssh.Conn
		var offered <-chan ssh.NewChannel
		var requests <-chan *ssh.Request
		if conn, offered, requests, err = ssh.NewClientConn(w, address, config); err == nil {
			answered := make(chan *ssh.Request)
			close(answered) // listen answers the requests instead of the library
			client := ssh.NewClient(newChannels(conn), offered, answered)
			announcement := listen(requests)
			if err = w.SetDeadline(time.Time{}); err == nil && stop() {
				return client, announcement, nil
			}
		}
	}
	_ = w.Close()
	if ctx.Err() != nil {
		err = os.ErrDeadlineExceeded // the end of ctx closed the connection, so this is a time-out
	}
	if errors.Is(w.broken(), errFlood) {
		return nil, nil, contract.NewProblem(contract.ReasonOutputTooLarge, "logging in to %s: %v", address, errFlood)
	}
	return nil, nil, interrupted(ctx, classifyHandshake(err, address, check))
}

// classifyHandshake returns the problem for a failed handshake. The reason depends on how far the handshake got, and on
// whether the network or the protocol failed.
func classifyHandshake(err error, address string, check *hostKeyCheck) *contract.Problem {
	if check.differs() {
		return contract.NewProblem(contract.ReasonHostKeyMismatch, "%s shows host key %s and %s is expected",
			address, ssh.FingerprintSHA256(check.seen()), ssh.FingerprintSHA256(check.expected))
	}
	negotiation, noCommon := errors.AsType[*ssh.AlgorithmNegotiationError](err)
	seen, broken, silent := check.seen(), isBreak(err), isTimeout(err)
	switch {
	case noCommon && check.expected != nil && negotiation.What == "host key":
		return contract.NewProblem(contract.ReasonHostKeyMismatch, "%s has no host key of type %s, which is expected",
			address, check.expected.Type())
	case noCommon:
		return contract.NewProblem(contract.ReasonNotSSH, "logging in to %s: no %s in common", address,
			negotiation.What)
	case seen == nil && silent:
		return contract.NewProblem(contract.ReasonNotSSH, "logging in to %s: it accepts connections and does not "+
			"speak SSH in time", address)
	case seen == nil && broken:
		return contract.NewProblem(contract.ReasonNotSSH, "logging in to %s: it ended the connection before it "+
			"showed a host key", address)
	case seen == nil:
		return contract.NewProblem(contract.ReasonNotSSH, "logging in to %s: what answers does not speak SSH", address)
	case silent:
		return contract.NewProblem(contract.ReasonNotSSH, "logging in to %s: it does not answer in time whether "+
			"the key is accepted", address)
	case broken:
		return contract.NewProblem(contract.ReasonConnectionLost, "logging in to %s: %v", address, rootCause(err))
	}
	return contract.NewProblem(contract.ReasonKeyRefused, "%s does not let the user log in with the private key",
		address)
}

func isTimeout(err error) bool {
	timeout, is := errors.AsType[net.Error](err)
	return is && timeout.Timeout()
}

// interrupted returns the error of an operation that failed with a problem. If the deadline of ctx has passed, the host
// may be the cause, so the error includes the problem. If ctx was cancelled, the error omits the problem.
func interrupted(ctx context.Context, problem *contract.Problem) error {
	switch {
	case ctx.Err() == nil:
		return problem
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", problem, context.Cause(ctx))
	}
	return fmt.Errorf("reaching the host: %w", context.Cause(ctx))
}

// rootCause removes a *net.OpError around an error, because the text of a *net.OpError repeats addresses.
func rootCause(err error) error {
	if op, is := errors.AsType[*net.OpError](err); is {
		return op.Err
	}
	return err
}
