// Package winostest answers whether an implementation of winos behaves as every caller relies on:
// real Windows, Wine and the simulated machine all have to pass it.
//
// Tests of implementations run it. It changes the machine that it runs on (services, environment, root
// certificates, files under a scratch directory) and restores the old state. It contains no tests itself.
package winostest

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Fixture is one machine, with the data that the suite needs in addition to its interfaces.
type Fixture struct {
	Host winos.Host
	// Scratch is an existing, empty directory on the machine, without spaces in its path.
	Scratch string
	// InstallService puts the test service's exe at a path whose directory exists. See package
	// order for how it behaves.
	InstallService func(t *testing.T, path string)
	// DisableService gives a service the start type Disabled.
	DisableService func(t *testing.T, name string)
	// Listen makes some program listen on a TCP port of its choice until the test ends. nil when
	// the machine can't.
	Listen func(t *testing.T) (port int)
	// CreateNetwork makes an HNS network of a name, a subnet and, for an overlay in flannel's form,
	// a VNI, as programs other than ours do, and gives the error of HNS. nil when the machine can't.
	CreateNetwork func(t *testing.T, network winos.HNSNetwork) error
	// AppendAs opens a file for appending as programs do, until the test ends, and gives what
	// writes a line. nil when the machine can't.
	AppendAs func(t *testing.T, path string) (write func(line string))
	// MakeJunction makes a junction to a directory.
	MakeJunction func(t *testing.T, path, to string)
	// Reboot restarts the machine through winos.System and returns when it is back. If it is nil, the machine must
	// not be restarted, and the suite doesn't change the host name and features.
	Reboot func(t *testing.T)
	// Cannot lists what the machine can't do, and why. Those cases are skipped, and the log reports this.
	Cannot map[Ability]string
}

// Ability is something that not every machine has.
type Ability string

// Abilities.
const (
	// CircularRefused: the service manager refuses a service that depends on itself.
	CircularRefused Ability = "services that depend on themselves are refused"
	// Recovery: the service manager notices that a process has died, and restarts it.
	Recovery Ability = "crashed services are restarted"
	// ServiceEnvironment: a service's process gets the variables of the service.
	ServiceEnvironment Ability = "services have variables of their own"
	// CaseInsensitive: names that differ in case only are one file.
	CaseInsensitive Ability = "file names are case-insensitive"
	// FileAccess: access to files is kept and reported.
	FileAccess Ability = "files have access rights"
	// ExeInUse: the exe of a running process can't be replaced.
	ExeInUse Ability = "exes of running processes are protected"
	// SharingModes: a file that is being written can't be written by others, nor replaced.
	SharingModes Ability = "files being written are protected"
	// Junctions: a directory can lead to another one.
	Junctions Ability = "there are junctions"
	// LongPaths: paths may have more than 260 characters.
	LongPaths Ability = "paths may be long"
	// HNS: there is a host network service.
	HNS Ability = "there is a host network service"
	// Routing: routes can be added and removed.
	Routing Ability = "routes can be changed"
	// Features: Windows features can be looked at.
	Features Ability = "features can be looked at"
	// OddCertificates: the root store takes certificates that Go's parser refuses.
	OddCertificates Ability = "certificates that Go does not parse are kept"
)

// abilities are all of them; anything else in Fixture.Cannot is a mistake.
func abilities() []Ability {
	return []Ability{
		CircularRefused, Recovery, ServiceEnvironment, CaseInsensitive, FileAccess, ExeInUse, SharingModes, Junctions,
		LongPaths, HNS, Routing, Features, OddCertificates,
	}
}
