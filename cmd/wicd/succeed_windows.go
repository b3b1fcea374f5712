package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// leaveSuccessor starts the program that was put in this one's place. It outlives this process.
func leaveSuccessor() (err error) {
	self, err := os.Executable() // the path that this process was started from, also when its file was moved aside
	if err != nil {
		return fmt.Errorf("finding the new program: %w", err)
	}
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening %s for the new program: %w", os.DevNull, err)
	}
	defer func() { err = errors.Join(err, nothing.Close()) }()
	process, err := os.StartProcess(self, []string{self, succeedVerb}, &os.ProcAttr{
		Files: []*os.File{nothing, nothing, nothing},
		Sys: &syscall.SysProcAttr{HideWindow: true,
			CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP},
	})
	if err != nil {
		return fmt.Errorf("starting the new program: %w", err)
	}
	return process.Release()
}
