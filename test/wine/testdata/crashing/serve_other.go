//go:build !windows

package main

// serve needs the service manager of Windows.
func serve() {}
