package cloud

import (
	"errors"
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/lab/cloud/powershell"
	"github.com/windows-nodes/wmco/lab/sim"
)

// hostKeyPath is the only host key of sshd that user data may bring.
const hostKeyPath = `C:\ProgramData\ssh\ssh_host_ed25519_key`

// Setup is what user data makes of a host.
type Setup struct {
	// Keys are authorised for administrators.
	Keys []ssh.PublicKey
	// HostKey is the SSH host key that the host is given, nil for none.
	HostKey ssh.Signer
	// Ports are open for TCP from outside, sorted.
	Ports []int
	// Persist says that the script is run at each boot, and not only at the first.
	Persist bool
	// again gives the keys that are authorised after a later boot, of those that were before.
	again func(authorized []byte) []ssh.PublicKey
}

// Evaluate says what a host does with its user data at boot. Nothing of a script that PowerShell
// can't read is run, which is an error here; so is a wrapping that the platform's agent does not
// know. authorized are the keys that the host has before, by its image or from an earlier boot.
func Evaluate(platform configv1.PlatformType, userData string, authorized []byte) (Setup, error) {
	script, persist, err := unwrap(platform, userData)
	if err != nil {
		return Setup{}, err
	}
	world, err := powershell.Run(script, map[string]string{
		"ProgramData": `C:\ProgramData`, "SystemRoot": `C:\Windows`, "windir": `C:\Windows`, "SystemDrive": "C:",
		"ProgramFiles": `C:\Program Files`,
	}, map[string]string{sim.AuthorizedKeysPath: string(authorized)})
	if err != nil {
		return Setup{}, fmt.Errorf("running user data: %w", err)
	}
	setup := Setup{Ports: world.Ports, Persist: persist}
	for line := range strings.Lines(world.Files[strings.ToLower(sim.AuthorizedKeysPath)]) {
		if key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err == nil {
			setup.Keys = append(setup.Keys, key)
		}
	}
	if pem, ok := world.Files[strings.ToLower(hostKeyPath)]; ok {
		if setup.HostKey, err = ssh.ParsePrivateKey([]byte(pem)); err != nil {
			return Setup{}, fmt.Errorf("starting sshd with the host key of the user data: %w", err)
		}
	}
	return setup, nil
}

// unwrap finds the script as the platform's agent does. On Azure the machine API hands a whole file
// to PowerShell, once; Google's agent runs its startup script at every boot. The others look for
// tags.
func unwrap(platform configv1.PlatformType, userData string) (script string, persist bool, err error) {
	switch platform {
	case configv1.AzurePlatformType:
		return userData, false, untagged(userData)
	case configv1.GCPPlatformType:
		return userData, true, untagged(userData)
	}
	_, rest, ok := strings.Cut(userData, "<powershell>")
	if !ok {
		return "", false, errors.New("the user data has no <powershell>")
	}
	script, rest, ok = strings.Cut(rest, "</powershell>")
	if !ok {
		return "", false, errors.New("the user data has no </powershell>")
	}
	return script, strings.Contains(rest, "<persist>true</persist>"), nil
}

// untagged refuses what PowerShell would take for a redirection: a line that begins with a tag.
func untagged(script string) error {
	for line := range strings.Lines(script) {
		if strings.HasPrefix(strings.TrimSpace(line), "<") && !strings.HasPrefix(strings.TrimSpace(line), "<#") {
			return fmt.Errorf("PowerShell can't read the line %q", strings.TrimSpace(line))
		}
	}
	return nil
}
