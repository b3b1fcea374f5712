package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// leaveSuccessor starts the program that was put in this one's place. It outlives this process.
func leaveSuccessor(ctx context.Context) error {
	self, err := os.Executable() // the path that this process was started from, also when its file was moved aside
	if err != nil {
		return fmt.Errorf("finding the new program: %w", err)
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), self, succeedVerb)
	command.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
	if err = command.Start(); err != nil {
		return fmt.Errorf("starting the new program: %w", err)
	}
	return command.Process.Release()
}
