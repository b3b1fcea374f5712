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

// markedLine matches a line that the plugin colours on a terminal.
var markedLine = regexp.MustCompile(`^(CONDITION +Degraded=True|ENTRY|FAILING|WAITING|WINDOW|PROBLEM)`)

// pluginPicture draws the plugin's output for the fleet in its tests, from their golden files.
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
		{"kubectl windows status", "status-12.txt", "\n\nHOST"},
		{"kubectl windows why 10.0.0.0", "why-refused.txt", "\n\nFACT"},
	} {
		file := filepath.Join(root, "internal", "diagnosis", "testdata", s.file)
		golden, err := os.ReadFile(file) //nolint:gosec // a file of this repository
		if err != nil {
			return nil, fmt.Errorf("reading what the plugin prints: %w", err)
		}
		shown, _, _ := strings.Cut(string(golden), s.end)
		line("$ "+s.command, `fill="#ffffff"`)
		for text := range strings.Lines(shown) {
			text = strings.TrimRight(text, "\n")
			style := `fill="#c9d1d9"`
			if markedLine.MatchString(text) {
				style = `fill="#ff9b8e"`
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
  <!-- make generate draws it from internal/diagnosis/testdata -->
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
