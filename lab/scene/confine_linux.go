package scene

import (
	"os/exec"
	"syscall"
)

// become lets a command run as a user and the group of the same number, and in no other group.
func become(cmd *exec.Cmd, user uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
}
