package main

import (
	"bytes"
	"fmt"

	"github.com/windows-nodes/wmco/internal/daemon/trial"
)

// trialPage lists the daemon's decisions about a revision and about its own program.
func trialPage() []byte {
	page := &bytes.Buffer{}
	fmt.Fprint(page, generated+"# Steps of the daemon\n\nThe table lists what the daemon does next with its revision "+
		"and its own program. The daemon acts on the first row that applies.\nAfter each step except waiting and "+
		"exiting, the daemon checks the table again. A revision *holds* when the\ndaemon has verified the whole host. "+
		"If another revision held before, a new revision is *on trial* until it holds.\n"+
		"[Node reference](node.md#what-the-daemon-does-by-itself) explains the steps.\n\n")
	var rows [][]string
	for _, row := range trial.Rows() {
		rows = append(rows, []string{prose(row.When), prose(string(row.Action))})
	}
	table(page, []string{"If", "Then"}, rows)
	return append(bytes.TrimRight(page.Bytes(), "\n"), '\n')
}
