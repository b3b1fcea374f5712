package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	pluginColumns = 108
	pluginMargin  = 24
	pluginSize    = 13
	pluginLine    = 18
	// pluginWidth is wide enough for the widest common font.
	pluginWidth = pluginColumns*pluginSize*63/100 + 2*pluginMargin
)

// screenText is the output of a command, up to a table.
type screenText struct{ command, file, end string }

// Lines that the plugin colours on a terminal: red for failing, yellow for waiting, green for a Ready host.
var (
	redLine    = regexp.MustCompile(`^(CONDITION +(Degraded|Available)=|ENTRY|FAILING|PROBLEM|.* W202 )`)
	yellowLine = regexp.MustCompile(`^(CONDITION +Upgradeable=False|WAITING|WINDOW|.*/Verifying )`)
	greenLine  = regexp.MustCompile(`^[0-9.]+ +Ready `)
)

// pluginPicture draws the plugin's output during a real run with simulated hosts: `make demo HOSTS=6 FAIL=auth`, and
// `kubectl windows reboot win-003` when the other hosts were Ready. To draw another run, replace the files.
func pluginPicture(root string) ([]byte, error) {
	var texts strings.Builder
	y := pluginMargin
	line := func(text, style string) {
		y += pluginLine
		if text == "" {
			return
		}
		var escaped strings.Builder
		_ = xml.EscapeText(&escaped, []byte(text))
		fmt.Fprintf(&texts, `  <text x="%d" y="%d" font-size="%d" xml:space="preserve" %s>%s</text>`+"\n", pluginMargin,
			y, pluginSize, style, escaped.String())
	}
	for _, s := range []screenText{
		{"kubectl windows status", "status.txt", "\n\nEND"},
		{"kubectl windows why 127.32.0.1", "why.txt", "\nPROBLEM    W202 KeyRefused (key)"},
	} {
		file := filepath.Join(root, "tools", "generate", "testdata", s.file)
		golden, err := os.ReadFile(file) //nolint:gosec // a file of this repository
		if err != nil {
			return nil, fmt.Errorf("reading what the plugin prints: %w", err)
		}
		shown, _, _ := strings.Cut(string(golden), s.end)
		line("$ "+s.command, `fill="#ffffff"`)
		for text := range strings.Lines(shown) {
			text = strings.TrimRight(text, "\n")
			style := `fill="#c9d1d9"`
			switch {
			case strings.HasPrefix(text, "CONDITION  Available=True"):
			case redLine.MatchString(text):
				style = `fill="#ff9b8e"`
			case yellowLine.MatchString(text):
				style = `fill="#e3b341"`
			case greenLine.MatchString(text):
				style = `fill="#56d364"`
			}
			for _, part := range wrapped(text) {
				line(part, style)
			}
		}
		line("", "")
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d"`+
		` width="%[1]d" height="%[2]d" role="img" aria-labelledby="title"`+
		` font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace">
  <title id="title">What kubectl windows status and kubectl windows why print</title>
  <!-- make generate draws it from tools/generate/testdata -->
  <rect x="0" y="0" width="%[1]d" height="%[2]d" rx="12" fill="#161b22"/>
%[3]s</svg>
`, pluginWidth, y, texts.String()), nil
}

// wrapped breaks a line between words, and indents the continuation lines as the plugin does.
func wrapped(text string) []string {
	const indent = "           "
	var lines []string
	for len([]rune(text)) > pluginColumns {
		at := strings.LastIndex(string([]rune(text)[:pluginColumns]), " ")
		lines, text = append(lines, text[:at]), indent+text[at+1:]
	}
	return append(lines, text)
}
