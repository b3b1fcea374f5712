package sshd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func TestExec(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		shell  string
		line   string
		stdin  string
		exec   func(ctx context.Context, c sshd.Command) int
		output string
		code   int
		want   sshd.Counters
	}{
		"the line reaches the machine as it was sent, stdin too": {
			line: `.wmco\wicd-0.exe "preflight"  %PATH%`, stdin: "in", exec: echo,
			output: `line=.wmco\wicd-0.exe "preflight"  %PATH% stdin=in`, want: sshd.Counters{Commands: 1},
		},
		"an exit code of more than eight bits arrives whole": {
			line: "x", exec: func(context.Context, sshd.Command) int { return 0xC0000005 }, code: 0xC0000005,
			want: sshd.Counters{Commands: 1},
		},
		"stderr arrives": {
			line: "x", exec: func(_ context.Context, c sshd.Command) int {
				_,
					_ = fmt.Fprint(c.Stderr, "oops")
				return 3
			},
			output: "oops", code: 3, want: sshd.Counters{Commands: 1},
		},
		"PowerShell as default shell counts as a start": {
			shell: "powershell.exe", line: "x", exec: echo, output: "line=x stdin=",
			want: sshd.Counters{Commands: 1, PowerShellStarts: 1},
		},
		"each PowerShell that a command names counts": {
			line: `cmd /c "C:\Windows\System32\WindowsPowerShell\v1.0\PowerShell.exe -c x"&pwsh -c y`,
			exec: func(context.Context, sshd.Command) int { return 0 },
			want: sshd.Counters{Commands: 1, PowerShellStarts: 2},
		},
		"a program whose name has PowerShell in it is not PowerShell": {
			line: `powershell-tools.exe`, exec: func(context.Context, sshd.Command) int { return 0 },
			want: sshd.Counters{Commands: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHost(t, func(m *diskMachine, _ *sshd.Settings) {
				m.exec = test.exec
				if test.shell != "" {
					m.shell = test.shell
				}
			})
			output, code := run(t, h.dial(t), test.line, test.stdin)
			if output != test.output || code != test.code {
				t.Errorf("got %q and exit code %d, want %q and %d", output, code, test.output, test.code)
			}
			got := h.Counters()
			if got.Commands != test.want.Commands || got.PowerShellStarts != test.want.PowerShellStarts {
				t.Errorf("the counters are %+v, want %+v", got, test.want)
			}
		})
	}
}

// waiter is a program that runs until it is killed. Then it closes the channel killed.
type waiter struct{ started, killed chan struct{} }

func newWaiter() waiter { return waiter{started: make(chan struct{}), killed: make(chan struct{})} }

func (w waiter) exec(ctx context.Context, _ sshd.Command) int {
	close(w.started)
	<-ctx.Done()
	close(w.killed)
	return -1
}

func TestACommandIsKilledWithItsSession(t *testing.T) {
	t.Parallel()
	tests := map[string]func(h *host, client *ssh.Client, session *ssh.Session){
		"when the client closes the session":    func(_ *host, _ *ssh.Client, s *ssh.Session) { _ = s.Close() },
		"when the client closes the connection": func(_ *host, c *ssh.Client, _ *ssh.Session) { _ = c.Close() },
		"when the network cuts it":              func(h *host, _ *ssh.Client, _ *ssh.Session) { h.Cut() },
		"when the machine goes down":            func(h *host, _ *ssh.Client, _ *ssh.Session) { h.machine.powerOff() },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWaiter()
			h := startHost(t, func(m *diskMachine, _ *sshd.Settings) { m.exec = w.exec })
			client := h.dial(t)
			session, err := client.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if err := session.Start("wait"); err != nil {
				t.Fatal(err)
			}
			await(t, "the command's start", w.started)
			end(h, client, session)
			await(t, "the command's end", w.killed)
		})
	}
}

func TestACommandThatTheMachineKilledHasNoExitCode(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(m *diskMachine,
		_ *sshd.Settings) {
		m.exec = func(context.Context, sshd.Command) int { return -1 }
	})
	session, err := h.dial(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var missing *ssh.ExitMissingError
	if err := session.Run("x"); !errors.As(err, &missing) {
		t.Errorf("the error is %v", err)
	}
}

func TestAHungCommandNeverEnds(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(m *diskMachine, s *sshd.Settings) { m.exec, s.Faults.HangExec = echo, true })
	client := h.dial(t)
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start("x"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	for range 3 { // the connection remains open
		if _, _, err := client.SendRequest("keepalive@openssh.com", true, nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the command ended: %v", err)
	default:
	}
	_ = session.Close()
	<-ended
	h.Change(func(s *sshd.Settings) { s.Faults.HangExec = false })
	if output, _ := run(t, client, "x", ""); output != "line=x stdin=" {
		t.Errorf("got %q", output)
	}
}

func TestNothingButCommandsAndFilesIsOffered(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	client := h.dial(t)
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.RequestPty("xterm", 24, 80, nil); err == nil {
		t.Error("a terminal was granted")
	}
	if err := session.Setenv("A", "b"); err == nil {
		t.Error("a variable was accepted")
	}
	if err := session.RequestSubsystem("netconf"); err == nil {
		t.Error("an unknown subsystem was granted")
	}
	if err := session.Shell(); err == nil {
		t.Error("a shell was granted")
	}
	if _, err := client.Dial("tcp", h.Address().String()); err == nil {
		t.Error("a connection was forwarded")
	}
	if _, err := client.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("a port was forwarded")
	}
}

func TestAConnectionHasTenSessions(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	client := h.dial(t)
	var sessions []*ssh.Session
	for range 10 {
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	if _, err := client.NewSession(); err == nil {
		t.Fatal("an eleventh session was granted")
	}
	_ = sessions[0].Close()
	eventually(t, "a free session", func() bool {
		s, err := client.NewSession()
		if err == nil {
			_ = s.Close()
		}
		return err == nil
	})
}

func TestCountersAreResetExceptForOpenConnections(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(m *diskMachine, _ *sshd.Settings) { m.exec = echo })
	client := h.dial(t)
	run(t, client, "x", "")
	h.ResetCounters()
	got := h.Counters()
	if got.Connections != 0 || got.Authenticated != 0 || got.Commands != 0 || got.OpenConnections != 1 {
		t.Errorf("the counters are %+v", got)
	}
}
