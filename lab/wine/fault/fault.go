// Package fault answers how a test has a stand-in on a Wine host do what real programs do wrong.
//
// Tests and the stand-ins share it; it only holds names.
package fault

// Protected is the argument with which a shim can't be ended by others, as if it hung in a driver.
const Protected = "--protected"

// Up is what a shim writes when it does what it was told.
const Up = "up"

// Lingers is the file that makes the process of a stand-in go on after its service has stopped, as
// csi-proxy and hybrid-overlay-node do. It is looked for when the service stops.
func Lingers(exe string) string { return dir + exe + ".lingers" }

// Twice is the file that a stand-in writes when another process of the same program holds what it
// needs. csi-proxy panics then: its pipes are taken.
func Twice(exe string) string { return dir + exe + ".twice" }

// Pipe stands for the pipes of a program: a file that one process holds at a time.
func Pipe(exe string) string { return dir + exe + ".pipe" }

const dir = `C:\windows\temp\standin-`
