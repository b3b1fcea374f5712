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

// Options of a cloud.
type Options struct {
	// Config reaches the cluster with an administrator's rights. Required.
	Config *rest.Config
	// Platform whose cloud it is: AWS, Azure, GCP, VSphere or Nutanix.
	Platform configv1.PlatformType
	// TemplateKey is authorised in the image that virtual machines are made from. vSphere's hosts
	// have it instead of user data; nil for none.
	TemplateKey ssh.PublicKey
	// Programs are what exes do on a host, by lower-case base name.
	Programs map[string]sim.Program
	// Costs are how long things take on a host; Latency is one way.
	Costs   sim.Costs
	Latency time.Duration
	// Provision is the time from a Machine's creation until it has an address, Boot the time from
	// then until its host answers, as in public clouds. With no Boot the address is told when the
	// host answers, as on vSphere.
	Provision, Boot time.Duration
	// Edit changes the host of a Machine before it is made. May be nil.
	Edit func(machine *machinev1beta1.Machine, host *fleet.HostOptions)
	// Log receives what the cloud does. Nothing is logged if it is not set.
	Log logr.Logger
}

// host describes the host that a Machine becomes, but for its address.
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

// port of a Machine's SSH server.
func port(machine *machinev1beta1.Machine) uint16 {
	if port, err := strconv.ParseUint(machine.Annotations[contract.SSHPortAnnotation], 10, 16); err == nil {
		return uint16(port)
	}
	return contract.SSHPort
}
