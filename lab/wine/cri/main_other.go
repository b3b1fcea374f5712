//go:build !windows

package main

import "os"

// main needs the pipes of Windows.
func main() { os.Exit(1) }
