package scene

import (
	"os/exec"
	"syscall"
)

// become makes a command run as a user and the group with the same number, without other groups.
func become(cmd *exec.Cmd, user uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
}
