package cluster

import (
	"os/exec"
	"runtime"
)

// StartChild starts a command that can't outlive the calling process, whatever
// ends that; on Linux only, elsewhere it is a plain child. It adds to the command's
// SysProcAttr and sets its Cancel. The returned wait, to be called once, returns when the
// command has ended, as exec.Cmd.Wait does.
//
// The command is started and waited for on one OS thread that does nothing else:
// the kernel ends such a child when the thread that forked it ends, not when the
// process does, and the Go runtime ends idle threads as it likes. This thread
// lives exactly as long as the child.
func StartChild(cmd *exec.Cmd) (wait func() error, err error) {
	tieToParent(cmd)
	started, finished := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			finished <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return func() error { return <-finished }, nil
}

// runChild runs such a command to its end.
func runChild(cmd *exec.Cmd) error {
	wait, err := StartChild(cmd)
	if err != nil {
		return err
	}
	return wait()
}
