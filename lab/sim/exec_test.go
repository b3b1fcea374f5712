package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// echo prints its arguments and its input. Its first argument is the exit code that it returns.
func echo(_ context.Context, p *sim.Process) int {
	input, _ := io.ReadAll(p.Stdin)
	_, _ = fmt.Fprintf(p.Stdout, "%s|%s|%s\nin %q\nno end", p.Args[0], strings.Join(p.Args[1:], "|"), p.Dir, input)
	_, _ = io.WriteString(p.Stderr, "complaint\n")
	code := 0
	if len(p.Args) > 1 {
		_, _ = fmt.Sscanf(p.Args[1], "%d", &code)
	}
	return code
}

func TestCommandsRunAsInTheShellOfWindows(t *testing.T) {
	t.Parallel()
	const home = `C:\Users\Administrator`
	out := func(args, in, newline string) string {
		return strings.ReplaceAll(home+`\.wmco\wicd-0a.exe|`+args+"|"+home+"\nin "+in+"\nno end", "\n", newline)
	}
	for name, test := range map[string]struct {
		shell         sim.Shell
		line          string
		code          int
		stdout, sterr string
		powershell    int
	}{
		"cmd runs a program relative to the home": {
			shell: sim.ShellCmd, line: `.wmco\wicd-0a.exe 7 --rpc id`, code: 7,
			stdout: out("7|--rpc|id", `"input"`, "\n"), sterr: "complaint\n",
		},
		"cmd takes quotes and leaves the extension out": {
			shell: sim.ShellCmd, line: `"C:\Users\Administrator\.wmco\wicd-0a" "a b"`,
			stdout: out("a b", `"input"`, "\n"), sterr: "complaint\n",
		},
		"cmd does not know a name": {
			shell: sim.ShellCmd, line: `uname -a`, code: 1,
			sterr: "'uname' is not recognized as an internal or external command,\r\noperable program or batch " +
				"file.\r\n",
		},
		"cmd takes a slash for a switch": {
			shell: sim.ShellCmd, line: `.wmco/wicd-0a.exe 0`, code: 1,
			sterr: "'.wmco' is not recognized as an internal or external command,\r\noperable program or batch " +
				"file.\r\n",
		},
		"cmd does not find a path": {shell: sim.ShellCmd, line: `C:\no\such.exe`, code: 1,
			sterr: "The system cannot find the path specified.\r\n"},
		"cmd exits": {shell: sim.ShellCmd, line: `exit 9009`, code: 9009},
		"cmd pipes nothing here": {shell: sim.ShellCmd, line: `.wmco\wicd-0a.exe 0 | more`, code: 1,
			sterr: "not simulated: .wmco\\wicd-0a.exe 0 | more\r\n"},
		"cmd starts PowerShell when told": {shell: sim.ShellCmd, line: `powershell.exe -Command Get-Item x`, code: 1,
			sterr: "not simulated: powershell.exe\r\n", powershell: 1},
		"PowerShell eats the input": {shell: sim.ShellPowerShell, line: `.wmco\wicd-0a.exe 0 --rpc id`,
			stdout: out("0|--rpc|id", `""`, "\r\n") + "\r\n", sterr: "complaint\n", powershell: 1},
		"PowerShell flattens the exit code": {shell: sim.ShellPowerShell, line: `.wmco/wicd-0a.exe 7`, code: 1,
			stdout: out("7", `""`, "\r\n") + "\r\n", sterr: "complaint\n", powershell: 1},
		"PowerShell keeps its own exit": {shell: sim.ShellPowerShell, line: `exit 5`, code: 5, powershell: 1},
		"PowerShell starts another": {shell: sim.ShellPowerShell, line: `powershell -c x`, code: 1,
			sterr: "not simulated: powershell\r\n", powershell: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, sim.Options{Default: echo, Shell: test.shell})
			writeExe(t, m, home+`\.wmco\wicd-0a.exe`)
			var stdout, stderr bytes.Buffer
			code := m.Exec(t.Context(), sim.ExecRequest{CommandLine: test.line, Stdin: strings.NewReader("input"),
				Stdout: &stdout, Stderr: &stderr})
			if code != test.code || stdout.String() != test.stdout || stderr.String() != test.sterr {
				t.Errorf("got exit code %d, output %q and errors %q", code, &stdout, &stderr)
			}
			if n := m.Starts().PowerShell; n != test.powershell {
				t.Errorf("PowerShell was started %d times", n)
			}
			if left := m.Processes(); len(left) > 0 {
				t.Errorf("these processes still run: %+v", left)
			}
		})
	}
}

func TestPowerShellExplainsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{Shell: sim.ShellPowerShell})
	writeExe(t, m, m.Home()+`\here.exe`)
	for _, line := range []string{"uname -a", "here.exe"} {
		var stderr bytes.Buffer
		if code := m.Exec(t.Context(), sim.ExecRequest{CommandLine: line, Stderr: &stderr}); code != 1 {
			t.Errorf("%s: exit code %d", line, code)
		}
		if want := "FullyQualifiedErrorId : CommandNotFoundException\r\n"; !strings.HasSuffix(stderr.String(), want) {
			t.Errorf("%s: errors %q", line, &stderr)
		}
	}
	noError(t, m.Host().Files.Remove(m.Home()+`\here.exe`))
}

func TestACommandEndsWithTheOneWhoRunsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Default: func(ctx context.Context, _ *sim.Process) int {
			<-ctx.Done()
			return 0
		}, Costs: sim.Costs{ProcessStart: time.Second, PowerShellStart: 2 * time.Second}})
		writeExe(t, m, m.Home()+`\x.exe`)
		for _, shell := range []sim.Shell{sim.ShellCmd, sim.ShellPowerShell} {
			for _, after := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, time.Minute} {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				began := time.Now()
				if code := m.Exec(ctx, sim.ExecRequest{CommandLine: `.\x.exe`, Shell: shell}); code != -1 {
					t.Errorf("%s: exit code %d", shell, code)
				}
				if took := time.Since(began); took != after {
					t.Errorf("%s: the command took %v", shell, took)
				}
				cancel()
			}
		}
		go func() {
			sleep(10 * time.Second)
			m.PowerCut()
		}()
		if code := m.Exec(t.Context(), sim.ExecRequest{CommandLine: `.\x.exe`}); code != -1 {
			t.Errorf("after a power cut, the exit code is %d", code)
		}
	})
}

// If a test fails inside a program, testing ends the goroutine of the program. The program must then count as ended.
func TestAProgramWhoseGoroutineEndsIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Default: func(context.Context, *sim.Process) int {
			runtime.Goexit()
			return 0
		}})
		writeExe(t, m, m.Home()+`\x.exe`)
		if code := m.Exec(t.Context(), sim.ExecRequest{CommandLine: `.\x.exe`}); code != 1 {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestTheProcessListShowsWhatWasRun(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{Default: func(_ context.Context, p *sim.Process) int {
		for _, info := range p.Machine.Processes() {
			_, _ = fmt.Fprintf(p.Stdout, "%d under %d: %s\n", info.PID, info.Parent, info.CommandLine)
		}
		return 0
	}})
	writeExe(t, m, m.Home()+`\x.exe`)
	var stdout bytes.Buffer
	m.Exec(t.Context(), sim.ExecRequest{CommandLine: `x.exe --token=secret "a b"`, Stdout: &stdout})
	want := `4 under 0: "C:\Windows\System32\cmd.exe" /c "x.exe --token=secret "a b""` + "\n" +
		`8 under 4: C:\Users\Administrator\x.exe --token=secret "a b"` + "\n"
	if stdout.String() != want {
		t.Errorf("the process list is\n%s", &stdout)
	}
	if all := strings.Join(m.CommandLines(), "\n"); strings.Count(all, "secret") != 2 {
		t.Errorf("the command lines were\n%s", all)
	}
	if n := m.Starts().Processes; n != 2 {
		t.Errorf("the machine counted %d process starts", n)
	}
}

func TestAPortBelongsToItsProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Default: func(ctx context.Context, p *sim.Process) int {
			if _, err := p.Listen(10250); err != nil {
				return 1
			}
			release, err := p.Listen(10248)
			if err != nil {
				return 1
			}
			release()
			p.Running()
			<-ctx.Done()
			return 0
		}})
		install(t, m, "kubelet", nil)
		listening := func() string {
			all, err := m.Host().Network.Listening(t.Context())
			noError(t, err)
			return fmt.Sprint(all)
		}
		m.SetForeignPort(10248, "other.exe")
		isError(t, m.Host().Services.Start(t.Context(), "kubelet"), winos.ErrStartFailed)
		m.SetForeignPort(10248, "")
		noError(t, m.Host().Services.Start(t.Context(), "kubelet"))
		if have := listening(); have != "map[10250:kubelet.exe]" {
			t.Errorf("the listening ports are %s", have)
		}
		noError(t, m.Host().Services.Stop(t.Context(), "kubelet"))
		if have := listening(); have != "map[]" {
			t.Errorf("the listening ports are %s", have)
		}
	})
}
