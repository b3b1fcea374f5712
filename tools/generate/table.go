package main

import (
	"fmt"
	"io"
	"strings"
)

// generated stands at the top of every page.
const generated = "<!-- Written from the code by make generate. Edit the code instead. -->\n\n"

// table writes rows under a header, in GitHub's Markdown, and an empty line.
func table(w io.Writer, header []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	fmt.Fprintf(w, "|%s\n", strings.Repeat(" --- |", len(header)))
	for _, row := range rows {
		line(row)
	}
	fmt.Fprintln(w)
}

// prose makes one line of text that may have several, and takes the meaning from characters that
// have one in a table or in HTML.
func prose(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "*",
		`\*`).Replace(strings.Join(strings.Fields(text), " "))
}

// code sets text as code. In a table a bar ends the cell even there.
func code(text string) string {
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// sentence takes the words off a comment that only repeat the name, and begins with a capital and
// ends with a full stop.
func sentence(comment, beginning string) string {
	rest := strings.TrimSpace(strings.TrimPrefix(comment, beginning))
	if rest == "" {
		return ""
	}
	return strings.ToUpper(rest[:1]) + strings.TrimSuffix(rest[1:], ".") + "."
}
