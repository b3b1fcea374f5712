package main

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// chapter is a chapter of the page: the reasons with the same first digit.
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

If a host waits or fails, its WindowsInstance shows a number, a reason, what happened, and what to do:

    kubectl get wininst -n openshift-windows-machine-config-operator -o wide

The same reason is in conditions, events, logs and metrics. Each number keeps its meaning from release to release.
On this page, an *instance* is a WindowsInstance. [Concepts](../concepts.md) explains the other words.

`

const certificateIntroduction = `## Certificate requests

The operator decides about the certificate requests of its hosts by exact rules. If the operator approves or denies
a request, the condition of the request has the reason. If a kubelet's request breaks a rule, the request stays
pending, so that an administrator can decide. An event then has the reason.

`

// reasons returns the numbered reasons, sorted by number.
func reasons(root string) ([]constant, error) {
	all, err := constants(filepath.Join(root, "internal", "contract"))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c constant) bool { return c.kind != "Reason" })
	slices.SortFunc(all, func(a, b constant) int {
		return cmp.Compare(contract.Reason(a.value).Number(), contract.Reason(b.value).Number())
	})
	return all, nil
}

// reasonPage lists the numbered reasons, and the reasons of certificate decisions.
func reasonPage(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(generated + reasonIntroduction)
	all, err := reasons(root)
	if err != nil {
		return nil, err
	}
	written := 0
	for _, c := range chapters() {
		var rows [][]string
		for _, one := range all {
			reason := contract.Reason(one.value)
			if reason.Number()/100 == c.hundred {
				rows = append(rows, []string{`<a id="` + reason.Code() + `"></a>` + reason.Code(), code(one.value),
					prose(strings.TrimSpace(one.comment)), prose(reason.Fix())})
			}
		}
		written += len(rows)
		fmt.Fprintf(&b, "## %s\n\n", c.title)
		table(&b, []string{"Number", "Reason", "When", "What to do"}, rows)
	}
	if written != len(all) {
		return nil, fmt.Errorf("%d of %d reasons belong to no chapter", len(all)-written, len(all))
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
