package main

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/windows-nodes/wmco/internal/contract"
)

// chapter is what the reasons of one hundred have in common.
type chapter struct {
	hundred int
	title   string
}

func chapters() []chapter {
	return []chapter{
		{1, "1xx: the entry"},
		{2, "2xx: reaching the host"},
		{3, "3xx: the host itself"},
		{4, "4xx: preparing and rebooting"},
		{5, "5xx: the payload"},
		{6, "6xx: services, files and certificates"},
		{7, "7xx: the Node"},
		{8, "8xx: leaving and waiting"},
		{9, "9xx: the cluster"},
	}
}

const reasonIntroduction = `# Reasons

When a host waits or fails, its WindowsInstance says why with a number, a reason, what happened, and what to do:

    kubectl get wininst -n openshift-windows-machine-config-operator -o wide

The same reason is in conditions, events, logs and metrics. Numbers are stable: they keep their meaning
from release to release.

`

const certificateIntroduction = `## Certificate requests

The operator decides about the certificate requests of its hosts by exact rules. The reason of its decision
stands in the condition of an approved or denied request, and in an event about one that it refuses: such a
request of a kubelet stays pending, for an administrator to look at.

`

// reasonPage lists the numbered reasons, and those of certificate decisions.
func reasonPage(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(generated + reasonIntroduction)
	written := 0
	for _, c := range chapters() {
		var rows [][]string
		for _, e := range contract.Explanations() {
			if e.Number/100 == c.hundred {
				number := fmt.Sprintf("W%d", e.Number)
				rows = append(rows, []string{`<a id="` + number + `"></a>` + number, code(string(e.Reason)),
					prose(e.When), prose(e.Fix)})
			}
		}
		written += len(rows)
		fmt.Fprintf(&b, "## %s\n\n", c.title)
		table(&b, []string{"Number", "Reason", "When", "What to do"}, rows)
	}
	if all := len(contract.Explanations()); written != all {
		return nil, fmt.Errorf("%d of %d reasons belong to no chapter", all-written, all)
	}
	b.WriteString(certificateIntroduction)
	decisions, err := constants(filepath.Join(root, "internal", "policy"))
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, c := range decisions {
		if c.kind == "CSRReason" {
			rows = append(rows, []string{code(c.value), prose(sentence(c.comment, c.name+" occurs when "))})
		}
	}
	table(&b, []string{"Reason", "When"}, rows)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
