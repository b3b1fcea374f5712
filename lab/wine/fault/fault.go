// Package fault names the files and arguments that make stand-ins on Wine hosts imitate faults of real programs.
//
// Tests and the stand-ins use the package. It contains only names.
package fault

// Protected is the argument that makes a shim impossible to kill. This simulates a program that hangs in a driver.
const Protected = "--protected"

// Up is the output of a shim when it is running as requested.
const Up = "up"

// Lingers is the file that keeps the process of a stand-in alive after its service has stopped. The real csi-proxy and
// hybrid-overlay-node also do this. The stand-in checks for the file when the service stops.
func Lingers(exe string) string { return dir + exe + ".lingers" }

// Twice is the file that a stand-in writes if another process of the same program holds its pipe. The real csi-proxy
// panics in this case.
func Twice(exe string) string { return dir + exe + ".twice" }

// Pipe is a file that represents the pipes of a program. Only one process can hold it at a time.
func Pipe(exe string) string { return dir + exe + ".pipe" }

const dir = `C:\windows\temp\standin-`
