package cloud

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// joinTries is how often the script tries to download the program.
const joinTries = 20

// firstBoot configures a host according to its image and its user data, and returns the resulting setup. If the user
// data is invalid, no login is possible on the host.
func (o Options) firstBoot(host *fleet.HostOptions, userData string, fault Fault) Setup {
	if fleet.IsJoinCommand(userData) {
		host.NoSSH = true
		return Setup{join: userData}
	}
	setup, err := Evaluate(o.Platform, userData, host.Machine.AuthorizedKeys)
	setup.again = func(authorized []byte) []ssh.PublicKey {
		later, err := Evaluate(o.Platform, userData, authorized)
		if err != nil {
			o.Log.Error(err, "a host can't use its user data")
		}
		return later.Keys
	}
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
		setup.Keys, setup.Persist = []ssh.PublicKey{stranger()}, false
	}
	if fault != FaultHostKey {
		host.Settings.HostKey = setup.HostKey
	}
	host.Machine.AuthorizedKeys = nil
	for _, key := range setup.Keys {
		host.Machine.AuthorizedKeys = append(host.Machine.AuthorizedKeys, ssh.MarshalAuthorizedKey(key)...)
	}
	host.Settings.Faults.Closed = !slices.Contains(setup.Ports, contract.SSHPort)
	return setup
}

// laterBoots runs persistent user data at each further boot, until the host is closed or ctx ends.
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
		files := host.Machine.Host().Files
		authorized, err := winos.ReadFile(files, sim.AuthorizedKeysPath)
		if err != nil {
			authorized = nil // a user has deleted the file
		}
		// this can only fail on a full disk, and then the keys stay unchanged
		_ = sshd.Authorize(files, s.again(authorized)...)
	}
}

// stranger returns a public key whose private key is unknown.
func stranger() ssh.PublicKey {
	signer, err := sshd.NewHostKey()
	if err != nil {
		panic(err) // the system has no randomness
	}
	return signer.PublicKey()
}

// The method joins runs user data that makes the host join by itself. Like the script, it tries for some minutes.
func (s Setup) joins(ctx context.Context, host *fleet.Host, log logr.Logger) {
	if s.join == "" {
		return
	}
	for range joinTries {
		output, err := fleet.RunJoinCommand(ctx, host.Machine, s.join)
		if err == nil || ctx.Err() != nil {
			return
		}
		log.Info("a host does not join yet", "host", host.Name, "detail", err.Error(), "output", output)
		if !pause(ctx, time.Second) {
			return
		}
	}
}
