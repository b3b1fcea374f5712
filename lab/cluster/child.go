package cluster

import "os/exec"

// StartChild starts a command that can't outlive the calling process, whatever ends that. wait, to be called once, returns when the command
// has ended, as exec.Cmd.Wait does.
func StartChild(cmd *exec.Cmd) (wait func() error, err error) {
	started, finished := runOnOwnThread(cmd)
	if err := <-started; err != nil {
		return nil, err
	}
	return func() error { return <-finished }, nil
}
