//go:build !linux

package cluster

import "os/exec"

// tieToParent does nothing on this platform, because the kernel can't tie a child to its parent. If a lab is killed
// here, its control plane continues to run. Stop works on all platforms.
func tieToParent(*exec.Cmd) {}

// awaitStop does nothing on this platform, because the kernel doesn't report the stop. A stopped child can respond for
// a short time.
func awaitStop(int) error { return nil }
