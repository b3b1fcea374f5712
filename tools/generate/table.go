package main

import (
	"fmt"
	"io"
	"strings"
)

// generated is the first line of every page.
const generated = "<!-- Written from the code by make generate. Edit the code instead. -->\n\n"

// table writes a table with a header in GitHub's Markdown, and an empty line.
func table(w io.Writer, header []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	fmt.Fprintf(w, "|%s\n", strings.Repeat(" --- |", len(header)))
	for _, row := range rows {
		line(row)
	}
	fmt.Fprintln(w)
}

// prose joins the lines of a text, and escapes characters that have a meaning in a table or in HTML.
func prose(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "*",
		`\*`).Replace(strings.Join(strings.Fields(text), " "))
}

// code formats text as code. It escapes bars, because in a table they end the cell even in code.
func code(text string) string {
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// sentence removes the beginning of a comment that only repeats the name. The result begins with a capital letter
// and ends with a full stop.
func sentence(comment, beginning string) string {
	rest := strings.TrimSpace(strings.TrimPrefix(comment, beginning))
	if rest == "" {
		return ""
	}
	return strings.ToUpper(rest[:1]) + strings.TrimSuffix(rest[1:], ".") + "."
}
