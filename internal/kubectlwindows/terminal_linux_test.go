package kubectlwindows_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/windows-nodes/wmco/internal/kubectlwindows"
)

// aloneVariable is an environment variable. If it is set, the test TestA75_APipeThatIsClosedEndsItSilently runs a
// command of the plugin and nothing else.
const aloneVariable = "KUBECTL_WINDOWS_TEST_ALONE"

// A reader such as head -1 closes the pipe after the first line. The plugin must then end without an error message.
func TestA75_APipeThatIsClosedEndsItSilently(t *testing.T) {
	t.Parallel()
	if os.Getenv(aloneVariable) != "" {
		os.Exit(kubectlwindows.Run(t.Context(), []string{"kubectl-windows", "status", "--help"},
			genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = read.Close(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	program := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
	program.Env, program.Stdout, program.Stderr = append(os.Environ(), aloneVariable+"=1"), write, &said
	err = program.Run()
	if ended, ok := program.ProcessState.Sys().(syscall.WaitStatus); !ok || ended.Signal() != syscall.SIGPIPE || said.Len() > 0 {
		t.Errorf("the program ended with %v and printed %q", err, said.String())
	}
	if err = write.Close(); err != nil {
		t.Fatal(err)
	}
}

// openTerminal opens a terminal. The test reads from screen what a program writes to terminal.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this machine has no terminals: ", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	fd := int(screen.Fd())
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return screen, terminal
}
