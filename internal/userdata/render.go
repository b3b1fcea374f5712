package userdata

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"strings"
	"text/template"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Input contains everything that the script depends on.
type Input struct {
	// Platform determines the format of the user data. An unknown platform has contract.PlatformNone's format.
	Platform contract.Platform
	// Join is the join command: see JoinCommand. If Join is set, the script installs no SSH server.
	Join string
	// PublicKey is the SSH key that may log in, as a line of authorized_keys: "<type> <base64>".
	PublicKey string
	// HostKey is the shared SSH host key for the first contact: an Ed25519 key in OpenSSH's PEM. The script contains no
	// host key if HostKey is empty, or if CarriesHostKey returns false for the platform.
	HostKey []byte
}

// MaxSize is the maximum size of user data in bytes, before base64 encoding. EC2 has the lowest limit of all clouds.
const MaxSize = 16 << 10

// CarriesHostKey reports whether all machines of a platform run the script, so that they have the shared host key. On
// vSphere and Nutanix, the image decides whether a machine runs the script.
func CarriesHostKey(platform contract.Platform) bool {
	switch platform {
	case contract.PlatformAWS, contract.PlatformAzure, contract.PlatformGCP:
		return true
	default:
		return false
	}
}

// ec2Launch is a version of EC2's agent, which runs user data and maintains the routes to EC2's metadata service.
type ec2Launch struct{ Version, URL, SHA256 string }

// `pinned` returns the first version of EC2Launch whose task add-routes works as the script needs. Amazon's images have
// had a later version since 2025, so only machines with old or custom images download this version. The digest comes
// from the Windows Package Manager's manifest of Amazon.EC2Launch 2.0.2107.0 (2026-09).
func pinned() ec2Launch {
	return ec2Launch{
		Version: "2.0.2107",
		URL:     "https://s3.amazonaws.com/amazon-ec2launch-v2/windows/amd64/2.0.2107/AmazonEC2Launch.msi",
		SHA256:  "459CB9533A58D9D8DBCE31C5F4D3DE4C5DDD15B99CC5D2FC8ADD3F0750A1BF5F",
	}
}

//go:embed template.ps1
var script string

// Render returns the user data. For the same input, it always returns the same text. It returns an error if a key
// doesn't have the format that Input describes, or if the user data is larger than MaxSize.
func Render(in Input) (_ string, err error) {
	values := struct {
		Join, PublicKey, HostKey, HostKeyLine string
		AWS                                   bool
		EC2Launch                             ec2Launch
	}{Join: in.Join, AWS: in.Platform == contract.PlatformAWS, EC2Launch: pinned()}
	if in.Join == "" {
		if values.PublicKey, err = canonicalLine(in.PublicKey); err != nil {
			return "", fmt.Errorf("reading the public key: %w", err)
		}
	}
	if len(in.HostKey) > 0 && CarriesHostKey(in.Platform) {
		if values.HostKeyLine, err = HostKeyLine(in.HostKey); err != nil {
			return "", err
		}
		values.HostKey = base64.StdEncoding.EncodeToString(in.HostKey)
	}
	parsed, err := template.New("user data").Option("missingkey=error").Parse(script)
	if err != nil {
		return "", fmt.Errorf("parsing the template: %w", err)
	}
	var text strings.Builder
	if err = parsed.Execute(&text, values); err != nil {
		return "", fmt.Errorf("filling in the template: %w", err)
	}
	wrapped := wrap(in.Platform, text.String())
	if len(wrapped) > MaxSize {
		return "", fmt.Errorf("the user data has %d bytes but clouds accept only %d", len(wrapped), MaxSize)
	}
	return wrapped, nil
}

// wrap converts the script to the format of the platform's agent. On Azure, the Machine API copies the user data to a
// PowerShell file and runs the file, so the script's tags must be comments. Google's agent accepts unchanged scripts.
func wrap(platform contract.Platform, text string) string {
	switch platform {
	case contract.PlatformGCP:
		return text
	case contract.PlatformAzure:
		return "# <powershell>\n" + text + "# </powershell>\n# <persist>true</persist>\n"
	default:
		return "<powershell>\n" + text + "</powershell>\n<persist>true</persist>\n"
	}
}
