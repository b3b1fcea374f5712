package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/windows-nodes/wmco/internal/payload"
)

// shownDigits is how much of a digest the summary shows.
const shownDigits = 12

// summarize prints what is in a payload and what is not.
func summarize(w io.Writer, dir string, m payload.Manifest) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nNAME\tVERSION\tSIZE\tSHA-256\tSOURCE\n")
	var total int64
	for _, f := range m.Files {
		total += f.Size
		fmt.Fprintf(table, "%s\t%s\t%s\t%.*s\t%s\n", f.Name, f.Version, mebibytes(f.Size), shownDigits, f.Digest, f.Source)
	}
	for _, missing := range m.Missing {
		fmt.Fprintf(table, "%s\tmissing\t\t\t%s; off without it: %s\n", missing.Name, missing.Reason, missing.Feature)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the summary: %w", err)
	}
	fmt.Fprintf(w, "\nPayload %s in %s: %d files, %s.\n", m.Version, dir, len(m.Files), mebibytes(total))
	if err := m.Joinable(); err != nil {
		fmt.Fprintf(w, "No host can join with it: %v\n", err)
	}
	return nil
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
