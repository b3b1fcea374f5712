package main

import (
	"context"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
)

// host is the machine that becomes a node.
type host interface {
	// authorize lets the operator log in with a key, and returns the host's entry in windows-instances. Repeating it
	// changes nothing.
	authorize(ctx context.Context, key ssh.PublicKey) (address, settings string, err error)
	// look renders what the machine holds.
	look(ctx context.Context) (sim.Snapshot, error)
	// windows is the machine itself.
	windows() winos.Host
	// noContainers says why no container starts; empty if they do.
	noContainers() string
}

// simulated is a host of the lab.
type simulated struct{ *fleet.Host }

func (s simulated) authorize(context.Context, ssh.PublicKey) (address, settings string, err error) {
	address, settings = s.Entry() // it has the key
	return address, settings, nil
}

func (s simulated) look(ctx context.Context) (sim.Snapshot, error) { return look(ctx, s.windows()) }

func (s simulated) windows() winos.Host { return s.Machine.Host() }

func (simulated) noContainers() string { return "no container starts on a simulated host" }

// cniConfig is the file that lets containerd call the network of pods ready. The network is somebody else's on this
// cluster, and here it is nobody's: to make one would take over the network card of the machine, and with it the
// connection of the runner.
const cniConfig = contract.DirExternalCNIConfig + `\99-realwindows.conf`

// bringNetwork writes that file.
func bringNetwork(files winos.Files) error {
	if err := files.MkdirAll(contract.DirExternalCNIConfig, winos.AccessInherit); err != nil {
		return err
	}
	return winos.WriteFile(files, cniConfig, strings.NewReader(`{"cniVersion":"0.3.1","name":"nat","type":"nat"}`),
		winos.AccessInherit)
}
