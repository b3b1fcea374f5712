package simhost_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/leak"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
	"github.com/windows-nodes/wmco/lab/sim/sshd/simhost"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// host is a simulated machine with an SSH server.
type host struct {
	*sshd.Server
	machine *sim.Machine
	key     ssh.Signer
}

func startHost(tb testing.TB, options sim.Options) host {
	tb.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		tb.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	options.AuthorizedKeys = ssh.MarshalAuthorizedKey(key.PublicKey())
	m, err := sim.New(options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = m.Close() })
	s, err := sshd.Start(tb.Context(), sshd.Options{Machine: simhost.Of(m),
		Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return host{Server: s, machine: m, key: key}
}

func (h host) dial(tb testing.TB) *ssh.Client {
	tb.Helper()
	client, err := ssh.Dial("tcp", h.Address().String(), &ssh.ClientConfig{
		User: "administrator", Auth: []ssh.AuthMethod{ssh.PublicKeys(h.key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: time.Minute,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func (h host) sftp(tb testing.TB, client *ssh.Client) *sftp.Client {
	tb.Helper()
	files, err := sftp.NewClient(client, sftp.UseConcurrentWrites(true))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = files.Close() })
	return files
}

func upload(files *sftp.Client, path string, content []byte) error {
	f, err := files.Create(path)
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	if _, err := f.ReadFromWithConcurrency(bytes.NewReader(content), 64); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return f.Close()
}

// daemon is a stand-in for an uploaded program.
func daemon(_ context.Context, p *sim.Process) int {
	request, err := winos.ReadFile(p.Host.Files, p.Dir+`\.wmco\1.req.json`)
	if err != nil {
		_, _ = fmt.Fprintln(p.Stderr, err)
		return 2
	}
	answer := strings.NewReader(strings.Join(p.Args[1:], " ") + " " + string(request))
	if err := winos.WriteFile(p.Host.Files, p.Dir+`\.wmco\1.ans.json`, answer, winos.AccessInherit); err != nil {
		_, _ = fmt.Fprintln(p.Stderr, err)
		return 2
	}
	return 0
}

func TestACallGoesThroughWithEitherShell(t *testing.T) {
	t.Parallel()
	for _, shell := range []sim.Shell{sim.ShellCmd, sim.ShellPowerShell} {
		t.Run(string(shell), func(t *testing.T) {
			t.Parallel()
			h := startHost(t, sim.Options{Shell: shell,
				Programs: map[string]sim.Program{"windows-instance-config-daemon.exe": daemon}})
			client := h.dial(t)
			files := h.sftp(t, client)
			if err := files.Mkdir(".wmco"); err != nil {
				t.Fatal(err)
			}
			for path, content := range map[string]string{".wmco/wicd.tmp": "MZ daemon", ".wmco/1.req.json": "{}"} {
				if err := upload(files, path, []byte(content)); err != nil {
					t.Fatal(err)
				}
			}
			if err := files.PosixRename(".wmco/wicd.tmp", ".wmco/wicd-0123456789abcdef.exe"); err != nil {
				t.Fatal(err)
			}
			session, err := client.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			output, err := session.CombinedOutput(`.wmco\wicd-0123456789abcdef.exe preflight --rpc 1`)
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			f, err := files.Open(".wmco/1.ans.json")
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(f)
			if err != nil || string(answer) != "preflight --rpc 1 {}" {
				t.Errorf("the answer is %q, %v", answer, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			want := sshd.Counters{Connections: 1, Authenticated: 1, Commands: 1, SFTPSessions: 1, OpenConnections: 1}
			if shell == sim.ShellPowerShell {
				want.PowerShellStarts = 1
			}
			got := h.Counters()
			got.BytesIn, got.BytesOut = 0, 0
			if got != want {
				t.Errorf("the counters are %+v, want %+v", got, want)
			}
		})
	}
}

func TestARebootEndsConnectionsAndTheHostComesBack(t *testing.T) {
	t.Parallel()
	h := startHost(t, sim.Options{Costs: sim.Costs{ShutdownDelay: time.Millisecond, Off: 50 * time.Millisecond}})
	client := h.dial(t)
	if err := h.machine.Host().System.Reboot(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	_ = client.Wait()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		client, err := ssh.Dial("tcp", h.Address().String(), &ssh.ClientConfig{
			User: "Administrator", Auth: []ssh.AuthMethod{ssh.PublicKeys(h.key)},
			HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		})
		if err == nil {
			_ = client.Close()
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

func TestWindowsRulesHoldOverSFTP(t *testing.T) {
	t.Parallel()
	h := startHost(t, sim.Options{})
	files := h.sftp(t, h.dial(t))
	for _, name := range []string{"a:b", "CON", "x.", "what?"} {
		if err := upload(files, name, nil); err == nil {
			t.Errorf("a file named %q was created", name)
		}
	}
	if err := upload(files, "Mixed.txt", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if info, err := files.Stat("mIXED.TXT"); err != nil || info.Size() != 1 {
		t.Errorf("letter case matters: %v, %v", info, err)
	}
}

// BenchmarkUpload uploads 8 MiB to each of several simulated machines at the same time. The clients and the servers run
// in one process.
func BenchmarkUpload(b *testing.B) {
	const size = 8 << 20
	content := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	for _, hosts := range []int{1, 50} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			var clients []*sftp.Client
			for range hosts {
				h := startHost(b, sim.Options{})
				clients = append(clients, h.sftp(b, h.dial(b)))
			}
			b.SetBytes(int64(hosts) * size)
			b.ReportAllocs()
			for b.Loop() {
				var all sync.WaitGroup
				for _, c := range clients {
					all.Go(func() {
						if err := upload(c, "x", content); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
		})
	}
}
