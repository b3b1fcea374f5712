package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/windows-nodes/wmco/internal/payload"
)

// shownDigits is the number of digits of a digest in the summary.
const shownDigits = 12

// summarize prints the content of a payload, and what is missing.
func summarize(w io.Writer, dir string, m payload.Manifest) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	// a Builder never fails
	line := func(columns ...string) { _, _ = io.WriteString(table, strings.Join(columns, "\t")+"\n") }
	line("NAME", "VERSION", "SIZE", "SHA-256", "SOURCE")
	var total int64
	for _, f := range m.Files {
		total += f.Size
		line(f.Name, f.Version, mebibytes(f.Size), f.Digest[:shownDigits], f.Source)
	}
	for _, missing := range m.Missing {
		line(missing.Name, "missing", "", "", missing.Reason+"; off without it: "+string(missing.Feature))
	}
	_ = table.Flush()
	end := fmt.Sprintf("\nPayload %s in %s: %d files, %s.\n", m.Version, dir, len(m.Files), mebibytes(total))
	if err := m.Joinable(); err != nil {
		end += fmt.Sprintf("No host can join with it: %v\n", err)
	}
	if _, err := io.WriteString(w, "\n"+text.String()+end); err != nil {
		return fmt.Errorf("printing the summary: %w", err)
	}
	return nil
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
