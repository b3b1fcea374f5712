package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/windows-nodes/wmco/lab/wine/fault"
)

const shim = "containerd-shim-runhcs-v1.exe"

// stay simulates the shim of a container, which outlives containerd and runs until it is killed. If the shim was
// started manually, it also ends when its standard input is closed.
func stay(args []string) int {
	if slices.Contains(args, fault.Protected) {
		if err := protect(); err != nil {
			fmt.Fprintln(os.Stderr, "keeping others from ending it:", err)
			return 1
		}
	}
	fmt.Println(fault.Up)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
