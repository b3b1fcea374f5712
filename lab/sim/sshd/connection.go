package sshd

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// banner is the version string that OpenSSH on Windows Server 2022 and 2025 sends.
	banner = "SSH-2.0-OpenSSH_for_Windows_9.5"
	// loginGrace, maxSessions and maxTries are OpenSSH's defaults for LoginGraceTime, MaxSessions and MaxAuthTries.
	loginGrace  = 120 * time.Second
	maxSessions = 10
	maxTries    = 6
)

var errRefused = errors.New("key refused")

// serve serves SSH on one connection until the connection ends.
func (s *Server) serve(ctx context.Context, w *wire) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.network.settings().Faults.Hung {
		_, _ = io.Copy(io.Discard, w)
		w.cut()
		return
	}
	grace := time.AfterFunc(loginGrace, w.cut)
	conn, channels, requests, err := ssh.NewServerConn(w, s.config())
	if !grace.Stop() || err != nil {
		_ = w.Close()
		return
	}
	s.network.counters.authenticated.Add(1)
	account, _ := s.account(conn.User())
	c := &connection{server: s, account: account}
	s.announce(conn)
	c.group.Go(func() { s.answer(conn, requests) })
	if s.network.settings().Faults.Flood == FloodRequests {
		c.group.Go(func() { floodRequests(conn) })
	}
	for offered := range channels {
		c.open(ctx, offered)
	}
	cancel()
	c.group.Wait()
	_ = w.Close()
}

// config returns the configuration for a connection. Each connection needs a new configuration, because host keys may
// change.
func (s *Server) config() *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		ServerVersion: banner,
		MaxAuthTries:  maxTries,
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			_, known := s.account(meta.User())
			if known && !s.network.settings().Faults.RefuseKeys && authorized(s.machine.Files(), key) {
				return &ssh.Permissions{}, nil
			}
			return nil, errRefused
		},
	}
	settings := s.network.settings()
	for _, key := range settings.hostKeys() {
		if settings.HostKeyTypes == nil || slices.Contains(settings.HostKeyTypes, key.PublicKey().Type()) {
			config.AddHostKey(key)
		}
	}
	return config
}

// account returns the account for a login name. The login name may begin with the host name.
func (s *Server) account(login string) (Account, bool) {
	host, user, found := strings.Cut(login, `\`)
	if !found {
		return s.machine.Account(login)
	}
	if host != "." && !strings.EqualFold(host, s.machine.Hostname()) {
		return Account{}, false
	}
	return s.machine.Account(user)
}

// answer answers global requests. Like OpenSSH, it refuses all requests except the request to prove host keys. It also
// refuses keepalive requests, because clients accept any answer to them.
func (s *Server) answer(conn *ssh.ServerConn, requests <-chan *ssh.Request) {
	for r := range requests {
		ok, payload := false, []byte(nil)
		if r.Type == requestProve {
			payload, ok = s.prove(conn, r.Payload)
		}
		if r.WantReply {
			_ = r.Reply(ok, payload)
		}
	}
}

// connection is a connection of a client that has logged in.
type connection struct {
	server  *Server
	account Account
	group   sync.WaitGroup

	mu       sync.Mutex
	sessions int
}

// open accepts channels for sessions and refuses all other channels. The hosts that the product supports don't forward
// connections either.
func (c *connection) open(ctx context.Context, offered ssh.NewChannel) {
	if offered.ChannelType() != "session" {
		_ = offered.Reject(ssh.UnknownChannelType, "only sessions are offered")
		return
	}
	if !c.enter() {
		_ = offered.Reject(ssh.ConnectionFailed, "open failed")
		return
	}
	channel, requests, err := offered.Accept()
	if err != nil {
		c.leave()
		return
	}
	c.group.Go(func() {
		defer c.leave()
		(&session{connection: c, channel: channel}).serve(ctx, requests)
	})
}

func (c *connection) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions >= cmp.Or(c.server.network.settings().MaxSessions, maxSessions) {
		return false
	}
	c.sessions++
	return true
}

func (c *connection) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions--
}
