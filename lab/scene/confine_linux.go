package scene

import (
	"os/exec"
	"syscall"
)

// become makes a command run as a user and as the group with the same ID, and as a member of no other groups.
func become(cmd *exec.Cmd, user uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
}
