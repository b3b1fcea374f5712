package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// mostOfEach is the maximum number of printed items of one kind. A node may report any number.
const mostOfEach = 10

// Report adds the content of the daemon's report to the diagnosis.
func (d *Diagnosis) Report(r *contract.NodeReport, now time.Time) {
	verified := map[bool]string{true: "verified", false: "not verified"}[r.State.Verified]
	phase := "not reconciled yet"
	if r.Reconciled != nil {
		phase = r.Reconciled.Phase
	}
	d.fact("holds", "%s, %s, %s", verified, phase, cmp.Or(r.State.Revision, "nothing"))
	d.fact("report", "%s ago, by daemon %s", now.Sub(r.Time).Round(time.Second), r.Version)
	if s := r.State; s.Failed != "" {
		d.add(Notice, "daemon", "", "revision %s could not be had: %s", s.Failed, s.Why)
	}
	var running, rest []string
	for _, s := range r.Services {
		switch {
		case s.State == "Running":
			running = append(running, s.Name)
		case s.Foreign:
			rest = append(rest, fmt.Sprintf("service %s is %s, and does not belong to the operator", s.Name, s.State))
		default:
			rest = append(rest, fmt.Sprintf("service %s is %s", s.Name, s.State))
		}
	}
	d.some("service", rest)
	d.fact("services", "%s run", contract.Few(running, mostOfEach, ", "))
	var absent, networks []string
	for _, n := range r.Networks {
		if n.Absent {
			absent = append(absent, "there is no network "+n.Name)
			continue
		}
		networks = append(networks, strings.TrimSpace(n.Name+" "+n.Subnet))
	}
	d.some("network", absent)
	d.fact("networks", "%s", contract.Few(networks, mostOfEach, ", "))
	d.reconciled(r.Reconciled)
	d.order()
}

func (d *Diagnosis) reconciled(last *contract.Reconciled) {
	if last == nil {
		return
	}
	for _, text := range first(last.Problems) {
		reason, detail, _ := strings.Cut(text, ": ")
		// Write the same text as for the Node's annotation, so that `order` removes the duplicate.
		d.add(Problem, "daemon", contract.Reason(reason), "apply-status: %s", detail)
	}
	var differences []string
	for _, one := range last.Differences {
		differences = append(differences, fmt.Sprintf("%s %s: it %s", one.Step, one.Name, one.Why))
	}
	d.some("difference", differences)
}

// `some` adds a notice for each of the first few texts, and a notice with the number of omitted texts.
func (d *Diagnosis) some(about string, all []string) {
	for _, text := range first(all) {
		d.add(Notice, about, "", "%s", text)
	}
	if more := len(all) - mostOfEach; more > 0 {
		d.add(Notice, about, "", "and %d more", more)
	}
}

func first(all []string) []string { return slices.Clone(all[:min(len(all), mostOfEach)]) }
