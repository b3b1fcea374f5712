package cloud

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"golang.org/x/crypto/ssh"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Options configure a cloud.
type Options struct {
	// Config connects to the cluster with an administrator's rights. Required.
	Config *rest.Config
	// Platform is the platform of the cloud: AWS, Azure, GCP, VSphere or Nutanix.
	Platform configv1.PlatformType
	// TemplateKey is authorized in the image of virtual machines. Hosts on vSphere use it instead of user data. Nil for
	// none.
	TemplateKey ssh.PublicKey
	// Programs are the implementations of the exes on a host, by lower-case base name.
	Programs map[string]sim.Program
	// Costs are the durations of operations on a host. Latency is for one direction.
	Costs   sim.Costs
	Latency time.Duration
	// Provision is the time from the creation of a Machine until it has an address. Boot is the time from then until
	// its host answers, as in public clouds. If Boot is 0, the address is reported when the host answers, as on
	// vSphere.
	Provision, Boot time.Duration
	// Edit changes the options of a Machine's host before the host is created. May be nil.
	Edit func(machine *machinev1beta1.Machine, host *fleet.HostOptions)
	// Log receives the actions of the cloud. If not set, nothing is logged.
	Log logr.Logger
}

// host returns the options of a Machine's host, except the host's address.
func (o Options) host(machine *machinev1beta1.Machine, userData string) (fleet.HostOptions, Setup) {
	name, _, _ := strings.Cut(machine.Annotations[HostnameAnnotation], ".")
	if name == "" {
		name = hostname(o.Platform, machine.Name)
	}
	options := fleet.HostOptions{
		Name: machine.Annotations[HostnameAnnotation],
		Machine: sim.Options{
			Hostname: name, MachineID: machine.Annotations[MachineIDAnnotation], User: user(o.Platform),
			Programs: o.Programs, Costs: o.Costs, Log: o.Log,
		},
		Port:     port(machine),
		Settings: sshd.Settings{Latency: o.Latency},
	}
	setup := o.firstBoot(&options, userData, faultOf(machine))
	if o.Edit != nil {
		o.Edit(machine, &options)
	}
	return options, setup
}

// port returns the port of the SSH server of a Machine.
func port(machine *machinev1beta1.Machine) uint16 {
	if port, err := strconv.ParseUint(machine.Annotations[contract.SSHPortAnnotation], 10, 16); err == nil {
		return uint16(port)
	}
	return contract.SSHPort
}
