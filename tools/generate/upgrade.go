package main

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// upgradePage lists the operator's decisions at each step of an upgrade or a reboot.
func upgradePage() []byte {
	page := &bytes.Buffer{}
	fmt.Fprint(page, generated+"# Steps of an upgrade or a reboot\n\nThe operator checks the rows of the current "+
		"step in order, and acts on the first row that "+
		"applies.\n[Upgrades](../upgrades.md#how-a-node-gets-a-new-revision) explains the steps. "+
		"`status.activity.step` of a WindowsInstance names the current step.\nThe *switch* is the change to the new "+
		"revision, or the reboot. A change that needs no payload and restarts\nno service reaches all nodes at once, "+
		"without these steps. A reboot begins with Waiting and has no\nRollingBack. The operator writes a granted "+
		"slot and the next step in one update of the status.\n\n")
	step, rows := v1alpha1.Step(""), [][]string(nil)
	flush := func() {
		if len(rows) > 0 {
			fmt.Fprintf(page, "## %s\n\n", step)
			table(page, []string{"If", "Then", "Next step", "Reason"}, rows)
		}
	}
	for _, row := range policy.UpgradeRows() {
		if row.Step != step {
			flush()
			step, rows = row.Step, nil
		}
		next := string(row.Next)
		if row.Next == "" || row.Next == row.Step {
			next = ""
		}
		rows = append(rows, []string{prose(row.When), prose(does(row)), next, reasonLink(row.Reason)})
	}
	flush()
	return append(bytes.TrimRight(page.Bytes(), "\n"), '\n')
}

// The function `does` returns the action of a row.
func does(row policy.UpgradeRow) string {
	if row.Action == policy.ActionWait && row.Next == row.Step {
		return "wait"
	}
	return cmp.Or(string(row.Action), "go on")
}

// reasonLink returns a link to a reason, with its number.
func reasonLink(reason contract.Reason) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf("[%s](reasons.md#%s)", reason.Code(), reason.Code())
}
