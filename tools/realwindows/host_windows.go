package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// machine is the machine that this program runs on.
type machine struct{ winos.Host }

// thisMachine returns this machine. If a join would reboot the machine, it returns an error, because a reboot ends
// the runner's job.
func thisMachine(ctx context.Context) (host, error) {
	m := machine{winos.New()}
	state, err := m.System.Feature(ctx, "Containers")
	if err != nil {
		return nil, fmt.Errorf("reading the state of the feature Containers: %w", err)
	}
	if state != winos.FeatureEnabled {
		return nil, fmt.Errorf("the feature Containers is %s: a join would reboot this machine", state)
	}
	return m, nil
}

func (m machine) windows() winos.Host { return m.Host }

func (machine) noContainers() string { return "" }

// serveSSH installs OpenSSH's server if it is missing, and starts it.
const serveSSH = `$ErrorActionPreference = 'Stop'
if (-not (Get-Service sshd -ErrorAction SilentlyContinue)) {
  Add-WindowsCapability -Online -Name OpenSSH.Server~~~~0.0.1.0 | Out-Null
}
Set-Service sshd -StartupType Automatic
Start-Service sshd`

// authorizedKeys is the file with the keys of administrators. OpenSSH ignores it if other users can write it.
const authorizedKeys = `C:\ProgramData\ssh\administrators_authorized_keys`

func (m machine) authorize(ctx context.Context, key ssh.PublicKey) (address, settings string, err error) {
	if _, err = powershell(ctx, serveSSH); err != nil {
		return "", "", fmt.Errorf("starting the SSH server: %w", err)
	}
	err = winos.WriteFile(m.Files, authorizedKeys, strings.NewReader(string(ssh.MarshalAuthorizedKey(key))),
		winos.AccessAdministrators)
	if err != nil {
		return "", "", err
	}
	own, err := m.Network.NodeIP(ctx)
	if err != nil {
		return "", "", fmt.Errorf("finding the address of this machine: %w", err)
	}
	return own.String(), "username=" + os.Getenv("USERNAME"), nil
}

// listNetworks lists the networks of the host network service. winos can only find a network by name.
const listNetworks = `Get-HnsNetwork | ForEach-Object { "network $($_.Name)=$($_.Type) $($_.Subnets.AddressPrefix)" }`

func (m machine) look(ctx context.Context) (sim.Snapshot, error) {
	s, err := look(ctx, m.Host)
	if err != nil {
		return nil, err
	}
	networks, err := powershell(ctx, listNetworks)
	if err != nil {
		return nil, fmt.Errorf("listing networks: %w", err)
	}
	for line := range strings.Lines(networks) {
		if name, what, found := strings.Cut(strings.TrimSpace(line), "="); found {
			s[name] = what
		}
	}
	return s, nil
}

func powershell(ctx context.Context, script string) (string, error) {
	output, err := exec.CommandContext(ctx, "powershell.exe", "-NoProfile", "-NonInteractive", "-Command",
		script).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return string(output), nil
}
