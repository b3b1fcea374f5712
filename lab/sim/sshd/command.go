package sshd

import (
	"path"
	"strings"
)

// powerShellStarts returns how many processes of PowerShell a command line starts. This is one process if PowerShell is
// the shell, and one process for each time that PowerShell's name occurs in the line.
func powerShellStarts(shell, line string) int64 {
	starts := int64(0)
	for _, word := range append([]string{shell},
		strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\"'&|;(", r) })...) {
		base := strings.ToLower(path.Base(strings.ReplaceAll(word, `\`, "/")))
		if name := strings.TrimSuffix(base, ".exe"); name == "powershell" || name == "pwsh" {
			starts++
		}
	}
	return starts
}
