package cluster

import (
	"os/exec"
	"syscall"
)

// tieToParent makes the kernel kill the command when the thread that starts it
// ends, thus also when this process is killed, and puts it in a process group of
// its own, which Ctrl-C in a terminal doesn't reach; cancelling the command's
// context kills that whole group. Other attributes of the command stay.
func tieToParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
