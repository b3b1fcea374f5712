//go:build !linux

package cluster

import "os/exec"

// tieToParent does nothing where the kernel has no such tie: a lab that is killed
// outright leaves its control plane running there. Stop works everywhere.
func tieToParent(*exec.Cmd) {}

// awaitStop does nothing where nobody tells: a stopped child may answer for another moment there.
func awaitStop(int) error { return nil }
