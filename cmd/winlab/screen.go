package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/policy"
)

// screen shows the state of hosts. It redraws a table on a terminal, or else prints a line for each change.
type screen struct {
	out      io.Writer
	width    int
	terminal bool
	lines    int               // number of lines of the table on the terminal
	said     map[string]string // without a terminal: the last line about each host
	began    time.Time
}

func newScreen(out io.Writer) *screen {
	width, terminal := isTerminal(out)
	return &screen{out: out, width: width, terminal: terminal, said: map[string]string{}, began: time.Now()}
}

func (s *screen) show(rows []row) {
	if s.terminal {
		s.draw(rows)
		return
	}
	for _, r := range rows {
		text := r.phase()
		switch {
		case r.instance == nil:
		case waits(r.instance):
			text += "  " + problemOf(r.instance)
		case r.got():
			text += "  " + durations(r.instance)
		}
		if text != "-" {
			s.say(r.name, text)
		}
	}
}

func (s *screen) draw(rows []row) {
	wide := len("NODE")
	for _, r := range rows {
		if r.instance != nil {
			wide = max(wide, len(r.instance.Status.NodeName))
		}
	}
	lines := []string{fmt.Sprintf("%-14s %-10s %-13s %-*s %8s  %s", "HOST", "SOURCE", "PHASE", wide, "NODE", "SECONDS",
		"PHASES, OR WHY IT WAITS")}
	for _, r := range rows {
		if r.instance == nil {
			lines = append(lines, fmt.Sprintf("%-14s %-10s %-13s", r.name, r.source(), r.phase()))
			continue
		}
		status := r.instance.Status
		why := durations(r.instance)
		if waits(r.instance) {
			why = problemOf(r.instance)
		}
		lines = append(lines, fmt.Sprintf("%-14s %-10s %-13s %-*s %8.1f  %s", r.name, r.source(), status.Phase, wide,
			status.NodeName, total(r.instance), why))
		if host := diagnosis.HostOf(r.instance); host.Failing && host.Fix != "" {
			lines = append(lines, fmt.Sprintf("%-14s fix: %s", "", host.Fix))
		}
	}
	s.paint(lines)
}

// paint replaces the lines that it has written before.
func (s *screen) paint(lines []string) {
	var page strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&page, "\x1b[%dA", s.lines)
	}
	for _, line := range lines {
		page.WriteString(clip(line, s.width) + "\x1b[K\n")
	}
	page.WriteString("\x1b[J")
	s.lines = len(lines)
	fmt.Fprint(s.out, page.String())
}

// The function `waits` reports whether an instance gives a reason why its host waits or has failed.
func waits(i *v1alpha1.WindowsInstance) bool {
	reason := diagnosis.HostOf(i).Reason
	return reason != "" && reason != string(contract.ReasonInProgress)
}

func problemOf(i *v1alpha1.WindowsInstance) string {
	host := diagnosis.HostOf(i)
	text := fmt.Sprintf("%s %s: %s", host.Code, host.Reason, host.Message)
	if next := policy.NextAttempt(i); !next.IsZero() {
		text += fmt.Sprintf(" (attempt %d failed, next at %s)", i.Status.Failures,
			next.Format("15:04:05"))
	}
	return text
}

func durations(i *v1alpha1.WindowsInstance) string {
	words := []string{}
	for _, p := range i.Status.Phases {
		words = append(words, fmt.Sprintf("%s %.1f", strings.ToLower(string(p.Phase)), seconds(p)))
	}
	return strings.Join(words, ", ")
}

// seconds returns the duration of a phase in seconds. If the phase hasn't ended, this is the time until now.
func seconds(p v1alpha1.PhaseTime) float64 {
	if p.Milliseconds != nil {
		return float64(*p.Milliseconds) / 1000
	}
	return time.Since(p.StartTime.Time).Seconds()
}

func total(i *v1alpha1.WindowsInstance) (sum float64) {
	for _, p := range i.Status.Phases {
		sum += seconds(p)
	}
	return sum
}

// clip shortens a line to the width of the terminal. If a line wrapped, the next redraw would start in the wrong place.
func clip(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width-1)]) + "…"
}
