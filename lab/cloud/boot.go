package cloud

import (
	"context"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// firstBoot gives a host what its user data and its image make of it, and says what that was. User
// data that nothing can be made of leaves a host that lets nobody in.
func (o Options) firstBoot(host *fleet.HostOptions, userData string, fault Fault) Setup {
	setup, err := Evaluate(o.Platform, userData)
	if err != nil {
		o.Log.Error(err, "a host can't use its user data")
	}
	if o.Platform == configv1.VSpherePlatformType {
		setup = Setup{Ports: []int{contract.SSHPort}}
		if o.TemplateKey != nil {
			setup.Keys = []ssh.PublicKey{o.TemplateKey}
		}
	}
	if fault == FaultWrongKey {
		setup.Keys = []ssh.PublicKey{stranger()}
	}
	if fault != FaultHostKey {
		host.Settings.HostKey = setup.HostKey
	}
	for _, key := range setup.Keys {
		host.Machine.AuthorizedKeys = append(host.Machine.AuthorizedKeys, ssh.MarshalAuthorizedKey(key)...)
	}
	host.Settings.Faults.Closed = !slices.Contains(setup.Ports, contract.SSHPort)
	return setup
}

// laterBoots runs persistent user data again at each boot, until the host is closed or ctx ends:
// whatever was authorised meanwhile is forgotten.
func (s Setup) laterBoots(ctx context.Context, host *fleet.Host) {
	for s.Persist {
		boot, err := host.Machine.WaitBoot(ctx)
		if err != nil {
			return
		}
		select {
		case <-boot.Down:
		case <-ctx.Done():
			return
		}
		if _, err = host.Machine.WaitBoot(ctx); err != nil {
			return
		}
		// a full disk is what may go wrong, and then the keys stay
		_ = sshd.Authorize(host.Machine.Host().Files, s.Keys...)
	}
}

// stranger is a key that nobody has the private half of.
func stranger() ssh.PublicKey {
	signer, err := sshd.NewHostKey()
	if err != nil {
		panic(err) // the system has no randomness
	}
	return signer.PublicKey()
}
