// Package page finds the commands on pages of the documentation, so that tests run the same commands as readers. The
// end-to-end tests and test/release use it. It runs no command.
package page

import (
	"fmt"
	"regexp"
	"strings"
)

// commandLine matches a line in a block of commands.
var commandLine = regexp.MustCompile(`^( {4,})(\S.*)$`)

// Command finds the first command on a page that begins with a text. It returns the command with its here-document.
func Command(page, beginning string) (string, error) {
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		match := commandLine.FindStringSubmatch(line)
		if match == nil || !strings.HasPrefix(match[2], beginning) {
			continue
		}
		text, indent := match[2], len(match[1])
		for i++; strings.Contains(match[2], "<<EOF") && !strings.HasSuffix(text, "\nEOF") && i < len(lines); i++ {
			text += "\n" + lines[i][min(indent, len(lines[i])):]
		}
		return text, nil
	}
	return "", fmt.Errorf("the page has no command %q", beginning)
}
