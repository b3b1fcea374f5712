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
	// authorize lets the operator log in with a key, and returns the host's entry in windows-instances. A repeated
	// call changes nothing.
	authorize(ctx context.Context, key ssh.PublicKey) (address, settings string, err error)
	// look returns a snapshot of the machine.
	look(ctx context.Context) (sim.Snapshot, error)
	// windows returns the machine's interface.
	windows() winos.Host
	// noContainers returns why the machine can't run containers, or an empty string if it can.
	noContainers() string
}

// simulated is a host of the lab.
type simulated struct{ *fleet.Host }

func (s simulated) authorize(context.Context, ssh.PublicKey) (address, settings string, err error) {
	address, settings = s.Entry() // it already accepts the key
	return address, settings, nil
}

func (s simulated) look(ctx context.Context) (sim.Snapshot, error) { return look(ctx, s.windows()) }

func (s simulated) windows() winos.Host { return s.Machine.Host() }

func (simulated) noContainers() string { return "no container starts on a simulated host" }

// cniConfig is the file that makes containerd report a ready pod network. The cluster's network type is External,
// so the operator doesn't configure a network. This tool doesn't create one either, because a pod network would
// take over the machine's network card and break the runner's connection.
const cniConfig = contract.DirExternalCNIConfig + `\99-realwindows.conf`

// bringNetwork writes cniConfig.
func bringNetwork(files winos.Files) error {
	if err := files.MkdirAll(contract.DirExternalCNIConfig, winos.AccessInherit); err != nil {
		return err
	}
	return winos.WriteFile(files, cniConfig, strings.NewReader(`{"cniVersion":"0.3.1","name":"nat","type":"nat"}`),
		winos.AccessInherit)
}
