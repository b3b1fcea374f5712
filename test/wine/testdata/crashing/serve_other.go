//go:build !windows

package main

// serve does nothing, because only Windows has a service manager.
func serve() {}
