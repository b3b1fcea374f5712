package cluster

import (
	"os/exec"
	"runtime"
)

// StartChild starts a command that ends when the calling process ends for any reason. This works only on Linux. On
// other platforms, the command is a normal child. StartChild changes the SysProcAttr of the command and sets its
// Cancel. The caller must call the returned function once. That function returns when the command has ended.
//
// One dedicated OS thread starts the command and waits for it. The kernel ends such a child when the thread that forked
// it ends, not when the process ends, and the Go runtime ends idle threads at any time. The dedicated thread exists
// exactly as long as the child.
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

// runChild starts the command of StartChild and waits for its end.
func runChild(cmd *exec.Cmd) error {
	wait, err := StartChild(cmd)
	if err != nil {
		return err
	}
	return wait()
}
