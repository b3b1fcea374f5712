package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
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

// awaitStop returns when a child that was sent SIGSTOP has stopped. The signal takes hold when one
// of the child's threads gets a processor, so until then a busy machine lets others answer
// requests. The kernel tells the parent when the last one stands still (waitid(2), WSTOPPED);
// WNOWAIT leaves that to be told again.
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
