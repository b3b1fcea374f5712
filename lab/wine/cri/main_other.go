//go:build !windows

package main

import "os"

// main needs Windows' pipes.
func main() { os.Exit(1) }
