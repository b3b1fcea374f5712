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
	"unicode/utf16"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Join has the values for the command with which a host joins by itself. The command contains them as JSON.
type Join struct {
	// Program is the daemon's program, and URL where the host downloads it.
	Program contract.Blob `json:"program"`
	URL     string        `json:"url"`
	// Attendance is passed to the program.
	Attendance contract.Attendance `json:"attendance"`
}

//go:embed join.ps1
var joinScript string

// JoinCommand returns the command for Windows PowerShell 5.1. It needs no .NET method, so it also runs in
// ConstrainedLanguage mode. The token is not in the command line of curl, which other users can read.
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
		// Until 2025, curl.exe of Windows looks in a certificate only for names, and never for addresses (curl
		// pull request 15421). Every API server's certificate has this name.
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

// apiServerName is a name that the certificate of an API server has (kubeadm and OpenShift).
const apiServerName = "kubernetes.default.svc"

// quoted returns JSON for a text in single quotes. PowerShell knows single quotes outside of ASCII as well.
func quoted(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\'':
			out.WriteString("''")
		case r < 0x80:
			out.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&out, "\\u%04x", unit)
			}
		}
	}
	return out.String()
}
