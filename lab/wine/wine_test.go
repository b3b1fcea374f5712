//go:build linux

package wine_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/leak"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/wine"
)

// helperVariable makes the test binary run as a lab that waits until it is killed.
const helperVariable = "WMCO_WINE_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		if err := waitToBeKilled(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	leak.VerifyTestMain(m)
}

func waitToBeKilled(ctx context.Context) error {
	template, err := wine.Prepare(ctx, wine.Options{Progress: os.Stderr, Shared: os.Getenv(helperVariable) == "shared"})
	if err != nil {
		return err
	}
	m, err := template.Start(ctx, wine.HostOptions{Hostname: "WIN-KILL", Address: netip.MustParseAddr("10.33.0.9")})
	if err != nil {
		return err
	}
	fmt.Println(m.Path(`C:\`))
	select {}
}

// prepare skips the test if Wine is missing and not required.
func prepare(t *testing.T, options wine.Options) *wine.Template {
	t.Helper()
	options.Progress = os.Stderr
	template, err := wine.Prepare(t.Context(), options)
	var missing *wine.MissingError
	if errors.As(err, &missing) && os.Getenv("WMCO_WINE") != "require" {
		t.Skip(missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func start(t *testing.T, template *wine.Template, options wine.HostOptions) *wine.Machine {
	t.Helper()
	if !options.Address.IsValid() {
		options.Address = netip.MustParseAddr("10.33.0.2")
	}
	m, err := template.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tried, failed := m.Boots()
		t.Logf("there were %d boots, %d of them were repeated", tried, failed)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestAHostSaysThatItIsWindowsServer(t *testing.T) {
	t.Parallel()
	template := prepare(t, wine.Options{})
	var ids []string
	for _, name := range []string{"WIN-A", "WIN-B"} {
		m := start(t, template, wine.HostOptions{Hostname: name})
		host, err := m.Windows()
		if err != nil {
			t.Fatal(err)
		}
		facts, err := host.Facts(t.Context())
		if err != nil || !facts.Server || facts.Build != 20348 ||
			!strings.Contains(facts.ProductName, "Windows Server 2022") || !facts.Admin {
			t.Errorf("the facts are %+v, %v", facts, err)
		}
		if template.Isolated() && (facts.Hostname != name || m.Hostname() != name) {
			t.Errorf("the host name is %q and %q, want %q", facts.Hostname, m.Hostname(), name)
		}
		ids = append(ids, facts.MachineID)
	}
	if ids[0] == ids[1] || ids[0] == "" {
		t.Errorf("the machine ids are not unique: %q", ids)
	}
}

func TestProgramsRunInTheUsersHome(t *testing.T) {
	t.Parallel()
	m := start(t, prepare(t, wine.Options{}), wine.HostOptions{Hostname: "WIN-RUN"})
	var out bytes.Buffer
	code, err := m.Run(t.Context(), wine.Command{Program: "cmd.exe", Arguments: []string{"/c", "echo %CD%& exit 7"},
		Stdout: &out, Stderr: &out})
	if err != nil || code != 7 || !strings.EqualFold(strings.TrimSpace(out.String()), wine.Home) {
		t.Errorf("the exit code is %d, %v; the output is %q", code, err, &out)
	}
	out.Reset()
	if code, err = m.Run(t.Context(), wine.Command{Program: "powershell.exe", Arguments: []string{"-c", "exit 0"},
		Stderr: &out}); err != nil || code != 97 {
		t.Errorf("PowerShell ended with %d, %v: %s; want an obvious failure", code, err, &out)
	}
}

func TestAHungProgramEndsWithItsTime(t *testing.T) {
	t.Parallel()
	m := start(t, prepare(t, wine.Options{}), wine.HostOptions{Hostname: "WIN-HUNG"})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	// The context ends as soon as the program has written its first output. On a busy machine, this takes a moment.
	out := &trigger{word: "begun", pull: func() { cancel(context.DeadlineExceeded) }}
	in, w := io.Pipe()
	defer w.Close()
	// If only the outer cmd.exe is killed, the inner one survives, like a hung child.
	_, err := m.Run(ctx, wine.Command{Program: "cmd.exe", Arguments: []string{"/c", "echo begun& cmd.exe /c pause"},
		Stdin: in, Stdout: out})
	var hung *wine.HungError
	if !errors.As(err, &hung) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(out.said.String(), "begun") {
		t.Errorf("the error is %v, the output is %q", err, &out.said)
	}
	if took := time.Since(out.pulled); took > time.Minute {
		t.Errorf("the end of the programs took %s", took)
	}
}

// trigger calls pull when a word is written to it.
type trigger struct {
	word   string
	pull   func()
	said   bytes.Buffer
	pulled time.Time
}

func (t *trigger) Write(p []byte) (int, error) {
	n, err := t.said.Write(p)
	if t.pulled.IsZero() && bytes.Contains(t.said.Bytes(), []byte(t.word)) {
		t.pulled = time.Now()
		t.pull()
	}
	return n, err
}

func TestWhatIsOnTheDiskOutlivesPower(t *testing.T) {
	t.Parallel()
	m := start(t, prepare(t, wine.Options{}), wine.HostOptions{Hostname: "WIN-PWR"})
	host, err := m.Windows()
	if err != nil {
		t.Fatal(err)
	}
	facts, err := host.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err = host.Environment.Set(t.Context(), "WMCO", "was here"); err != nil {
		t.Fatal(err)
	}
	down, err := m.WaitBoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err = m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-down:
	default:
		t.Error("the channel was not closed when the host went down")
	}
	if _, err = host.Facts(t.Context()); err == nil {
		t.Error("the OS interface of an earlier boot still answers")
	}
	if host, err = m.Windows(); err != nil {
		t.Fatal(err)
	}
	again, err := host.Facts(t.Context())
	if err != nil || again.BootID == facts.BootID || again.MachineID != facts.MachineID {
		t.Errorf("the facts were %+v, and are %+v, %v", facts, again, err)
	}
	if all, err := host.Environment.All(t.Context()); err != nil || all["WMCO"] != "was here" {
		t.Errorf("the environment is %v, %v", all, err)
	}
	m.PowerOff()
	if _, err := m.Files().Stat(`C:\`); !errors.Is(err, wine.ErrOff) {
		t.Errorf("a call on a host that is off returns %v", err)
	}
	if err := m.PowerOn(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFilesAreWindowsFiles(t *testing.T) {
	t.Parallel()
	m := start(t, prepare(t, wine.Options{}), wine.HostOptions{Hostname: "WIN-FILE"})
	before, err := m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.OpenFile(wine.Home+`\Mixed.txt`, os.O_CREATE|os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteAt([]byte("content"), 0); err != nil {
		t.Error(err)
	}
	if err = f.Close(); err != nil {
		t.Error(err)
	}
	if content, err := winos.ReadFile(m.Files(), `c:\USERS\administrator\mIXED.TXT`); err != nil ||
		string(content) != "content" {
		t.Errorf("read through Wine, the file contains %q, %v", content, err)
	}
	if f, err = m.OpenFile(`c:\USERS\administrator\mIXED.TXT`, os.O_RDONLY); err != nil {
		t.Errorf("reading the file by its name in another case: %v", err)
	} else if err = f.Close(); err != nil {
		t.Error(err)
	}
	if _, err = m.OpenFile(wine.Home+`\a:b`, os.O_CREATE|os.O_WRONLY); !errors.Is(err, winos.ErrInvalidName) {
		t.Errorf("creating a file with an invalid name: %v", err)
	}
	after, err := m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := sim.Diff(before, after); len(diff) != 1 ||
		!strings.HasPrefix(diff[0], `+ file c:\users\administrator\mixed.txt: 7 bytes`) {
		t.Errorf("the snapshots differ in %q", diff)
	}
}

func TestAHostsNetworkIsItsOwn(t *testing.T) {
	t.Parallel()
	template := prepare(t, wine.Options{})
	if !template.Isolated() {
		t.Skip("this kernel doesn't allow namespaces")
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	})
	defer group.Wait()
	defer server.Close()
	target := netip.MustParseAddrPort(server.Addr().String())
	m := start(t, template, wine.HostOptions{Hostname: "WIN-NET", Reach: []netip.AddrPort{target}})
	host, err := m.Windows()
	if err != nil {
		t.Fatal(err)
	}
	if ports, err := host.Listening(t.Context()); err != nil || len(ports) != 1 {
		t.Errorf("the host listens on %v, %v; want only the requested ports", ports, err)
	}
	conn, err := m.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Write([]byte("hello\n")); err != nil {
		t.Error(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("the answer is %q, %v", line, err)
	}
	if err = conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err = m.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:1")); err == nil {
		t.Error("a connection to port 1 succeeded")
	}
}

func TestThreeHostsAtOnce(t *testing.T) {
	t.Parallel()
	template := prepare(t, wine.Options{})
	if !template.Isolated() {
		t.Skip("this kernel doesn't allow namespaces")
	}
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			m, err := template.Start(t.Context(),
				wine.HostOptions{Hostname: fmt.Sprintf("WIN-%d", i),
					Address: netip.AddrFrom4([4]byte{10, 33, 0, byte(i + 2)})})
			if err != nil {
				t.Error(err)
				return
			}
			if got := m.Hostname(); got != fmt.Sprintf("WIN-%d", i) {
				t.Errorf("host %d has the name %q", i, got)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestNothingIsLeftOfALaboratoryThatIsKilled(t *testing.T) {
	t.Parallel()
	prepare(t, wine.Options{})
	for _, kind := range []string{"isolated", "shared"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env, cmd.Stderr = append(os.Environ(), helperVariable+"="+kind), os.Stderr
			output, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err = cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(output).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			prefix := filepath.Dir(strings.TrimSpace(line))
			if len(wineProcesses(t, prefix)) == 0 {
				t.Fatal("the host has no processes")
			}
			if err = cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for deadline := time.After(2 * time.Minute); len(wineProcesses(t, prefix)) > 0; {
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatalf("these processes still run: %q", wineProcesses(t, prefix))
				}
			}
			prepare(t, wine.Options{})
			if _, err = os.Stat(prefix); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the next lab did not remove the files of the killed lab: %v", err)
			}
		})
	}
}

// wineProcesses lists the command lines of the processes of a prefix.
func wineProcesses(t *testing.T, prefix string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(content), "\x00"), "WINEPREFIX="+prefix) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}

func TestAHostWithoutNamespacesWorksToo(t *testing.T) {
	t.Parallel()
	m := start(t, prepare(t, wine.Options{Shared: true}), wine.HostOptions{})
	var out bytes.Buffer
	if code, err := m.Run(t.Context(), wine.Command{Program: "cmd.exe", Arguments: []string{"/c", "echo hello"},
		Stdout: &out}); err != nil || code != 0 || !strings.HasPrefix(out.String(), "hello") {
		t.Errorf("the exit code is %d, %v; the output is %q", code, err, &out)
	}
	if err := m.Reboot(t.Context()); err != nil {
		t.Error(err)
	}
	prefix := filepath.Dir(m.Path(`C:\`))
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if left := wineProcesses(t, prefix); len(left) > 0 {
		t.Errorf("after the run, these files are left: %q", left)
	}
}
