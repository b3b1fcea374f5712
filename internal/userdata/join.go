package userdata

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Join is what the command of a host that joins by itself depends on. The command contains it as JSON.
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
// ConstrainedLanguage mode. The token is neither on a command line nor in a file that outlives the join.
func JoinCommand(in Join) (string, error) {
	content, err := json.Marshal(in)
	if err != nil {
		return "", fmt.Errorf("encoding the command: %w", err)
	}
	parsed, err := template.New("join").Parse(joinScript)
	if err != nil {
		return "", fmt.Errorf("parsing the template: %w", err)
	}
	var text strings.Builder
	err = parsed.Execute(&text, struct{ JSON, Folder, Program string }{
		strings.ReplaceAll(string(content), "'", "''"), contract.RPCDir, contract.UploadedName(in.Program.Digest)})
	if err != nil {
		return "", fmt.Errorf("filling in the template: %w", err)
	}
	return text.String(), nil
}
