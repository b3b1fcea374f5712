package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// tieToParent makes the kernel kill the command when the thread that starts it ends, and therefore also when this
// process is killed. It puts the command in its own process group, which Ctrl-C in a terminal doesn't reach. Cancelling
// the command's context kills the whole group. Other attributes of the command are preserved.
func tieToParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// awaitStop returns when a child that received SIGSTOP has stopped. The signal takes effect when a thread of the child
// gets a processor. Until then, other threads can answer requests. The kernel notifies the parent when the last thread
// has stopped (waitid(2), WSTOPPED). WNOWAIT keeps the notification pending.
func awaitStop(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for process %d to stop: %w", pid, err)
		}
		return nil
	}
}
