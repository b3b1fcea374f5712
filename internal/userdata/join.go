package userdata

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"text/template"
	"unicode"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Join contains the values of a join command, as JSON. A host that runs the command joins by itself, without SSH.
type Join struct {
	// Program is the daemon's program. The host downloads it from URL and runs it.
	Program    contract.Blob       `json:"program"`
	URL        string              `json:"url"`
	Attendance contract.Attendance `json:"attendance"`
}

//go:embed join.ps1
var joinScript string

// JoinCommand returns a join command for Windows PowerShell 5.1. The command calls no .NET methods, so it also runs in
// ConstrainedLanguage mode. It keeps the token off curl's command line, which other users can read.
func JoinCommand(in Join) (string, error) {
	content, err := json.Marshal(in)
	if err != nil {
		return "", fmt.Errorf("encoding the command: %w", err)
	}
	where, err := url.Parse(in.URL)
	if err != nil || strings.Contains(in.URL, "'") {
		return "", fmt.Errorf("%.100q is not a URL for a command", in.URL)
	}
	connect := ""
	if _, err := netip.ParseAddr(where.Hostname()); err == nil {
		// Until 2025, Windows had a curl.exe that verifies only the names in a certificate, not its IP addresses (curl
		// pull request 15421). So let curl connect to the address under the name apiServerName.
		port := cmp.Or(where.Port(), "443")
		connect = fmt.Sprintf("--connect-to '%s:%s:%s:%s' ", apiServerName, port, where.Hostname(), port)
		where.Host = apiServerName + ":" + port
	}
	parsed, err := template.New("join").Parse(joinScript)
	if err != nil {
		return "", fmt.Errorf("parsing the template: %w", err)
	}
	var text strings.Builder
	err = parsed.Execute(&text, struct{ JSON, Folder, Program, Connect, URL string }{
		quoted(string(content)), contract.RPCDir, contract.UploadedName(in.Program.Digest), connect, where.String()})
	if err != nil {
		return "", fmt.Errorf("filling in the template: %w", err)
	}
	return text.String(), nil
}

// apiServerName is a name that is in every API server's certificate, on OpenShift and on clusters that kubeadm created.
const apiServerName = "kubernetes.default.svc"

// `quoted` prepares JSON for single quotes in PowerShell, which also accepts some non-ASCII characters as single
// quotes. Only comments in the CA bundle may have non-ASCII characters. `quoted` removes these characters.
func quoted(text string) string {
	ascii := strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return -1
		}
		return r
	}, text)
	return strings.ReplaceAll(ascii, "'", "''")
}
