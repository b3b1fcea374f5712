package sshd

import (
	"context"
	"sync"

	"golang.org/x/crypto/ssh"
)

// session is one SSH channel with a command or with SFTP.
type session struct {
	*connection
	channel ssh.Channel
	busy    bool
	work    sync.WaitGroup
}

// serve answers the requests in a session until the client closes the session or the connection ends. Then the command
// of the session ends as well.
func (s *session) serve(ctx context.Context, requests <-chan *ssh.Request) {
	ctx, cancel := context.WithCancel(ctx)
	for r := range requests {
		accepted := s.begin(ctx, r)
		if r.WantReply {
			_ = r.Reply(accepted != nil, nil)
		}
		if accepted != nil {
			s.work.Go(accepted)
			if s.server.network.settings().Faults.Flood == FloodSession {
				s.work.Go(func() { floodSession(s.channel) })
			}
		}
	}
	cancel()
	_ = s.channel.Close()
	s.work.Wait()
}

// begin returns the function that handles a request. It returns nil if the server refuses the request.
func (s *session) begin(ctx context.Context, r *ssh.Request) func() {
	if s.busy {
		return nil
	}
	var payload struct{ Text string }
	switch r.Type {
	case "exec":
		if ssh.Unmarshal(r.Payload, &payload) != nil {
			return nil
		}
		s.busy = true
		return func() { s.command(ctx, payload.Text) }
	case "subsystem":
		if ssh.Unmarshal(r.Payload, &payload) != nil || payload.Text != "sftp" {
			return nil
		}
		s.busy = true
		return func() { s.files(ctx) }
	}
	return nil
}

// command runs a command line, and ends the session with the exit code of the command.
func (s *session) command(ctx context.Context, line string) {
	n := &s.server.network
	n.counters.commands.Add(1)
	n.counters.powershell.Add(powerShellStarts(s.account.Shell, line))
	if n.settings().Faults.HangExec {
		<-ctx.Done()
		return
	}
	switch n.settings().Faults.Flood {
	case FloodOutput:
		flood(ctx, s.channel)
		return
	case FloodErrors:
		flood(ctx, s.channel.Stderr())
		return
	}
	code := s.server.machine.Exec(ctx, s.account,
		Command{Line: line, Stdin: s.channel, Stdout: s.channel, Stderr: s.channel.Stderr()})
	if code < 0 || ctx.Err() != nil {
		_ = s.channel.Close() // the command was killed, so it has no exit code
		return
	}
	s.exit(uint32(code))
}

// exit sends the exit code to the client and ends the session.
func (s *session) exit(code uint32) {
	_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
	_ = s.channel.Close()
}
