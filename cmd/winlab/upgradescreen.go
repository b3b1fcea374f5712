package main

import (
	"fmt"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/scene"
)

// showUpgrade shows the progress of an upgrade: as a table on a terminal, or else as a line for each change.
func (s *screen) showUpgrade(o *scene.Observer, instances []v1alpha1.WindowsInstance, rollout v1alpha1.RolloutStatus) {
	steps := map[string]string{}
	for i := range instances {
		if update := instances[i].Status.Upgrade(); update != nil {
			steps[instances[i].Status.NodeName] = string(update.Step)
		}
	}
	nodes := o.Nodes()
	summary := fmt.Sprintf("%s: %d of %d at %s, %d staged, %d unavailable  %s",
		rollout.Phase, rollout.Updated, rollout.Total, rollout.Revision, rollout.Staged, rollout.Unavailable,
		rollout.Message)
	if !s.terminal {
		s.say("", summary)
		for _, n := range nodes {
			s.say(n.Node, upgradeState(n, steps[n.Node]))
		}
		return
	}
	lines := []string{summary, fmt.Sprintf("%-10s %-18s %-9s %9s %12s  %s", "NODE", "VERSION", "STAGED", "BYTES",
		"UNAVAILABLE", "STATE")}
	for _, n := range nodes {
		staged := "-"
		if n.Staged != "" && n.Staged == n.Annotations[contract.StageAnnotation] || n.Staged == n.Desired {
			staged = fmt.Sprintf("%.1f s", n.StagedSeconds)
		}
		lines = append(lines, fmt.Sprintf("%-10s %-18s %-9s %9d %10.1f s  %s", n.Node, n.Version, staged, n.StagedBytes,
			n.UnavailableSeconds, upgradeState(n, steps[n.Node])))
	}
	s.paint(lines)
}

func upgradeState(n scene.Observed, step string) string {
	text := "serves"
	switch {
	case n.Cordoned && !n.Ready:
		text = "cordoned, not Ready"
	case n.Cordoned:
		text = "cordoned"
	case !n.Ready:
		text = "not Ready"
	}
	if step != "" {
		text += ", " + step
	}
	return text + " at " + n.Version
}

// say prints a line about a subject, unless the previous line about this subject was the same.
func (s *screen) say(about, text string) {
	if s.said[about] == text {
		return
	}
	s.said[about] = text
	fmt.Fprintf(s.out, "%6.1fs  %-13s  %s\n", time.Since(s.began).Seconds(), about, text)
}
