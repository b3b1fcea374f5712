// Package winostest tests implementations of package winos: real Windows, Wine and the simulated machine must all
// behave as callers expect.
//
// Tests of the implementations run it. It changes the machine that it runs on (services, environment, root
// certificates, files below a scratch directory) and restores the old state.
package winostest

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Fixture is one machine and the functions that the suite needs in addition to its interfaces.
type Fixture struct {
	Host winos.Host
	// Scratch is an existing, empty directory on the machine, without spaces in its path.
	Scratch string
	// InstallService copies the test service's exe to a path whose directory exists. Package order describes how the
	// test service behaves.
	InstallService func(t *testing.T, path string)
	// DisableService gives a service the start type Disabled.
	DisableService func(t *testing.T, name string)
	// Listen makes some program listen on a TCP port of its choice until the test ends. If the machine can't do this,
	// Listen is nil.
	Listen func(t *testing.T) (port int)
	// CreateNetwork creates an HNS network as other programs do, and returns HNS' error. The network has a name, a
	// subnet and, for an overlay in flannel's form, a VNI. If the machine can't do this, CreateNetwork is nil.
	CreateNetwork func(t *testing.T, network winos.HNSNetwork) error
	// AppendAs opens a file for appending as other programs do, until the test ends. The returned function writes a
	// line. If the machine can't do this, AppendAs is nil.
	AppendAs func(t *testing.T, path string) (write func(line string))
	// MakeJunction creates a junction to a directory.
	MakeJunction func(t *testing.T, path, to string)
	// Reboot restarts the machine through winos.System and returns when it is back. If it is nil, the machine must
	// not be restarted, and the suite doesn't change the host name and features.
	Reboot func(t *testing.T)
	// Cannot lists the abilities that the machine lacks, each with the reason. Cases that need them are skipped, and
	// the log reports this.
	Cannot map[Ability]string
}

// Ability is a feature that not every machine has.
type Ability string

// The abilities.
const (
	// CircularRefused: the service manager refuses a service that depends on itself.
	CircularRefused Ability = "services that depend on themselves are refused"
	// Recovery: the service manager notices that a process has died, and restarts it.
	Recovery Ability = "crashed services are restarted"
	// ServiceEnvironment: a service's process gets the variables of the service.
	ServiceEnvironment Ability = "services have variables of their own"
	// CaseInsensitive: names that differ only in case mean the same file.
	CaseInsensitive Ability = "file names are case-insensitive"
	// FileAccess: access to files is kept and reported.
	FileAccess Ability = "files have access rights"
	// ExeInUse: the exe of a running process can't be replaced.
	ExeInUse Ability = "exes of running processes are protected"
	// SharingModes: while a file is being written, other programs can neither write nor replace it.
	SharingModes Ability = "files being written are protected"
	// Junctions: a directory can be a junction to another directory.
	Junctions Ability = "there are junctions"
	// LongPaths: paths may have more than 260 characters.
	LongPaths Ability = "paths may be long"
	// HNS: the host network service exists.
	HNS Ability = "there is a host network service"
	// Routing: routes can be added and removed.
	Routing Ability = "routes can be changed"
	// Features: the state of Windows features can be read.
	Features Ability = "features can be looked at"
	// OddCertificates: the root store accepts certificates that Go's parser rejects.
	OddCertificates Ability = "certificates that Go does not parse are kept"
)

// abilities returns all abilities. Any other value in Fixture.Cannot is a mistake.
func abilities() []Ability {
	return []Ability{
		CircularRefused, Recovery, ServiceEnvironment, CaseInsensitive, FileAccess, ExeInUse, SharingModes, Junctions,
		LongPaths, HNS, Routing, Features, OddCertificates,
	}
}
