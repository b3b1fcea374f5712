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

// hostKeyPath is the only host key of sshd that user data can set.
const hostKeyPath = `C:\ProgramData\ssh\ssh_host_ed25519_key`

// Setup is the configuration of a host by its user data.
type Setup struct {
	// Keys are the public keys that may log in as an administrator.
	Keys []ssh.PublicKey
	// HostKey is the SSH host key of the host. Nil for none.
	HostKey ssh.Signer
	// Ports are open for TCP from outside, sorted.
	Ports []int
	// Persist means that the script runs at each boot, and not only at the first.
	Persist bool
	// join is a script that makes the host join without SSH. It is empty for other hosts.
	join string
	// The function `again` returns the authorized keys after a later boot, from the keys before this boot.
	again func(authorized []byte) []ssh.PublicKey
}

// Evaluate returns the effect of the user data at boot. It returns an error if PowerShell can't parse the script,
// because PowerShell then runs nothing of the script. It also returns an error for a wrapping that the agent of the
// platform doesn't support. `authorized` contains the host's keys before the boot, from its image or an earlier boot.
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

// unwrap extracts the script like the agent of the platform. On Azure, the whole user data is a script that runs once.
// On Google Cloud, it is a script that runs at every boot. The agents of other platforms search for tags.
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

// untagged refuses a line that starts with a tag, which PowerShell would interpret as a redirection.
func untagged(script string) error {
	for line := range strings.Lines(script) {
		if strings.HasPrefix(strings.TrimSpace(line), "<") && !strings.HasPrefix(strings.TrimSpace(line), "<#") {
			return fmt.Errorf("PowerShell can't read the line %q", strings.TrimSpace(line))
		}
	}
	return nil
}
