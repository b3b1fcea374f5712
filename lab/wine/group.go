//go:build linux

package wine

import (
	"os/exec"
	"syscall"
)

// group starts a command in a process group of its own, which ends as a whole when the command's
// context does.
func group(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
