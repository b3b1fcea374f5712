package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mitchellh/go-wordwrap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Style says how to print text.
type Style struct {
	Now time.Time
	// Wide prints all hosts and all columns.
	Wide  bool
	Color bool
	// Bars prints a progress bar for each host that joins, is upgraded or reboots.
	Bars bool
	// Width is the number of columns of the terminal. Zero means that lines aren't wrapped.
	Width int
}

// hang is the column where the text of an entry begins, in all its lines.
const hang = 11

// Limits of the output, so that it fits on one screen.
const (
	maxHosts  = 20 // rows; no limit with -o wide
	maxGroups = 10
	maxNamed  = 5 // names in a list
	barWidth  = 30
)

// Visible replaces characters that control a terminal or change the direction of text. It is for texts that hosts and
// users write. Line ends and tabs remain unchanged.
func Visible(text string) string {
	obeyed := func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
	}
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\r\n", "\n"), string(unicode.ReplacementChar))
	if !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var shown strings.Builder
	for _, r := range text {
		switch {
		case !obeyed(r):
			shown.WriteRune(r)
		case r < ' ':
			shown.WriteString("^" + string(r+'@'))
		default:
			fmt.Fprintf(&shown, `\u%04x`, r)
		}
	}
	return shown.String()
}

// paper collects the output. In texts from the API server, it makes control characters visible and indents all lines
// after the first. So such a text can't imitate a line of the plugin.
type paper struct {
	strings.Builder
	Style
}

// line prints a text on a new line. If the text is wider than the terminal, it is broken between words.
func (p *paper) line(format string, args ...any) { p.print("", fmt.Sprintf(format, args...)) }

// entry prints a word and then a text. If the text continues the previous entry, the word is empty.
func (p *paper) entry(word, format string, args ...any) {
	p.print(fmt.Sprintf("%-*s", hang, word), fmt.Sprintf(format, args...))
}

// mark prints an entry whose word is red or yellow. If `bad` is true, the word is red.
func (p *paper) mark(bad bool, word, format string, args ...any) {
	word = fmt.Sprintf("%-*s", hang, word)
	if p.Color {
		word = fmt.Sprintf("\x1b[%dm%s\x1b[0m", map[bool]int{true: 31, false: 33}[bad], word)
	}
	p.print(word, fmt.Sprintf(format, args...))
}

func (p *paper) print(word, text string) {
	text = Visible(text)
	if p.Width > 2*hang {
		text = wordwrap.WrapString(text, uint(p.Width-hang)) //nolint:gosec // above zero
	}
	p.WriteString(strings.TrimRight(word+indented(text), " ") + "\n")
}

func indented(text string) string {
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", hang))
}

func (p *paper) age(t metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(p.Now.Sub(t.Time))
}

// narrowest is the minimum width of a wrapped column. If the last column is narrower, it isn't wrapped.
const narrowest = 24

// `wrapped` breaks the texts in the last column between words, so that the rows fit into the width of the terminal.
// Each line of a broken text becomes a row.
func (p *paper) wrapped(headers []string, rows [][]string) [][]string {
	last, left := len(headers)-1, p.Width
	for i, h := range headers[:last] {
		if strings.HasPrefix(h, "+") && !p.Wide {
			continue
		}
		widest := len(strings.TrimPrefix(h, "+"))
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(Visible(row[i])))
		}
		left -= widest + 3
	}
	var all [][]string
	for _, row := range rows {
		text := Visible(row[last])
		if left >= narrowest {
			text = wordwrap.WrapString(text, uint(left)) //nolint:gosec // above zero
		}
		for i, line := range strings.Split(text, "\n") {
			if i > 0 {
				row = make([]string, len(row))
			}
			all = append(all, append(slices.Clone(row[:last]), line))
		}
	}
	return all
}

var readyRow = regexp.MustCompile(`(?m)^(\S+ +)(Ready)( )`)

// table prints headers and the rows below them. Columns whose header begins with + are printed only with Wide.
func (p *paper) table(headers []string, rows [][]string) error {
	table := &metav1.Table{}
	for _, h := range headers {
		name, wide := strings.CutPrefix(h, "+")
		table.ColumnDefinitions = append(table.ColumnDefinitions,
			metav1.TableColumnDefinition{Name: name, Type: "string", Priority: map[bool]int32{true: 1}[wide]})
	}
	for _, row := range p.wrapped(headers, rows) {
		var cells []any
		for _, cell := range row {
			cells = append(cells, Visible(cell))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	var text strings.Builder
	err := printers.NewTablePrinter(printers.PrintOptions{Wide: p.Wide}).PrintObj(table, &text)
	for line := range strings.Lines("\n" + text.String()) {
		line = strings.TrimRight(line, " \n") + "\n"
		if p.Color {
			line = readyRow.ReplaceAllString(line, "${1}\x1b[32m${2}\x1b[0m${3}")
		}
		p.WriteString(line)
	}
	return err
}

// Print writes the status as text for people. Without Wide, the text fits on one screen for any number of hosts.
func (s *Status) Print(out io.Writer, style Style) error {
	p := &paper{Style: style}
	s.printOperator(p)
	c := s.Instances
	p.entry("FLEET", "%s: %d Ready, %d joining, %d failing, %d leaving; %s not Ready",
		contract.Count(int(c.Total), "host"), c.Ready, c.Joining, c.Failing, c.Leaving,
		contract.Count(int(s.NodesNotReady), "node"))
	s.Rollout.print(p)
	if p.Bars {
		s.printBars(p)
	}
	for _, r := range s.RejectedEntries {
		p.mark(true, "ENTRY", "%s: %s %s", r.Key, r.Code, r.Message)
	}
	for _, r := range s.RejectedSettings {
		p.mark(true, "SETTING", "%s %s", r.Code, r.Message)
	}
	s.printGroups(p)
	if err := s.printHosts(p); err != nil {
		return err
	}
	_, err := io.WriteString(out, p.String())
	return err
}

func (s *Status) printOperator(p *paper) {
	for _, u := range s.Unread {
		p.mark(true, "UNREAD", "%s", u)
	}
	switch o := s.Operator; {
	case o.Problem != "":
		p.mark(true, "OPERATOR", "%s", o.Problem)
	case o.Holder != "":
		p.entry("OPERATOR", "%s, seen %s ago", o.Holder, p.age(*o.Renewed))
	default:
		p.entry("OPERATOR", "unknown")
	}
	var well []string
	for _, c := range s.Prerequisites {
		if !isBad(c) {
			well = append(well, c.Type+"="+string(c.Status))
			continue
		}
		p.mark(c.Type == v1alpha1.ConditionDegraded || c.Type == v1alpha1.ConditionAvailable, "CONDITION",
			"%s=%s for %s: %s: %s", c.Type, c.Status, p.age(c.LastTransitionTime), c.Reason, c.Message)
	}
	if len(well) > 0 {
		p.entry("CONDITION", "%s", strings.Join(well, ", "))
	}
}

func (r *Rollout) print(p *paper) {
	if r.Revision == "" {
		p.entry("ROLLOUT", "no revision is published")
		return
	}
	p.entry("ROLLOUT", "%s %s %s %d/%d updated, %d have the payload", r.Revision, r.Phase,
		bar(int(r.Updated), int(r.Total)), r.Updated, r.Total, r.Staged)
	if r.Phase == v1alpha1.RolloutHalted {
		p.mark(true, "HALTED", "%s", r.Message)
	} else if r.Phase != v1alpha1.RolloutIdle {
		p.entry("", "%s", r.Message)
	}
	slots := make([]string, 0, len(r.Slots))
	for _, one := range r.Slots {
		doing := strings.TrimSpace(string(one.Purpose) + " " + string(one.Step))
		slots = append(slots, fmt.Sprintf("%s (%s %s)", one.Node, doing, p.age(one.Since)))
	}
	p.entry("BUDGET", "%s", strings.TrimSuffix(fmt.Sprintf("maxUnavailable %s, %d unavailable, %d disrupted: %s",
		r.MaxUnavailable, r.Unavailable, len(slots), contract.Few(slots, maxNamed, ", ")), ": "))
	if r.Closed != "" {
		p.mark(false, "WINDOW", "%s", r.Closed)
	}
	for _, f := range r.Failures[:min(maxNamed, len(r.Failures))] {
		p.mark(true, "FAILED", "%s at %s, %s ago: %s %s", f.Node, f.Revision, p.age(f.Time), f.Code, f.Message)
	}
}

// printBars prints a progress bar for each host that joins, is upgraded or reboots. The hosts that are nearest to
// completion come first.
func (s *Status) printBars(p *paper) {
	hosts := slices.DeleteFunc(slices.Clone(s.Hosts), func(h Host) bool { return steps(h) == nil })
	slices.SortStableFunc(hosts, func(a, b Host) int {
		x, y := steps(a), steps(b)
		return cmp.Compare(y[0]*x[1], x[0]*y[1])
	})
	for i, h := range hosts {
		if i == maxHosts {
			p.entry("", "and %d more", len(hosts)-i)
			return
		}
		done := steps(h)
		p.entry("NODE", "%s %-20s %s", bar(done[0], done[1]), cmp.Or(h.Node, h.Name), h.doing())
	}
}

func (h *Host) doing() string { return strings.TrimSuffix(string(h.Phase)+"/"+string(h.Step), "/") }

func (s *Status) printGroups(p *paper) {
	if len(s.Waiting) > 0 {
		p.line("")
	}
	for i, g := range s.Waiting {
		if i == maxGroups {
			p.line("%d more reasons: -o json", len(s.Waiting)-i)
			break
		}
		word := map[bool]string{true: "FAILING", false: "WAITING"}[g.Failing]
		what := strings.TrimSpace(g.Code + " " + cmp.Or(g.Reason, string(g.Phase)))
		p.mark(g.Failing, word, "%d × %s, the longest for %s: %s", len(g.Hosts), what, p.age(g.Since),
			contract.Few(g.Hosts, maxNamed, ", "))
		if g.Message != "" {
			p.entry("", "%s", short(g.Message))
		}
		if g.Fix != "" {
			p.entry("", "fix: %s", short(g.Fix))
		}
	}
}

func (s *Status) printHosts(p *paper) error {
	if len(s.Hosts) == 0 && len(s.Unread) > 0 {
		return nil // it is unknown whether there are hosts
	}
	if len(s.Hosts) == 0 {
		p.line("")
		p.line("no hosts: add one with kubectl windows add ADDRESS --username NAME")
		return nil
	}
	var rows [][]string
	well := 0
	for _, h := range s.Hosts {
		isWell := h.State() == stateReady
		if !p.Wide && len(s.Hosts) > maxHosts && (isWell || len(rows) == maxHosts) {
			if isWell {
				well++
			}
			continue
		}
		rows = append(rows, []string{h.Name, h.doing(), cmp.Or(h.Code, h.Reason, "-"), p.age(h.Since),
			cmp.Or(h.NodeReady, "-"), cmp.Or(h.Revision, "-"), cmp.Or(h.Desired, "-"), cmp.Or(h.Node, "-"),
			h.Address, h.Reason, h.Message})
	}
	// The first six columns fit into 80 characters. The names of the reasons are among the other columns, because the
	// groups above already show them.
	if err := p.table([]string{"Host", "Phase", "Code", "Since", "Ready", "Version", "+Desired", "+Node", "+Address",
		"+Reason", "+Message"}, rows); err != nil {
		return err
	}
	if left := len(s.Hosts) - len(rows); left > 0 {
		p.line("%d more hosts, %d of them Ready without anything to do: -o wide shows all", left, well)
	}
	return nil
}

func bar(done, total int) string {
	filled := 0
	if total > 0 {
		filled = barWidth * min(done, total) / total
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", barWidth-filled) + "]"
}

func short(text string) string {
	const most = 300
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// Print writes a diagnosis as text for people: first the symptom, then causes and fixes, then other facts and events.
func (d *Diagnosis) Print(out io.Writer, style Style) error {
	p := &paper{Style: style}
	p.line("%s: %s", d.Subject, d.Symptom)
	for _, u := range d.Unread {
		p.mark(true, "UNREAD", "%s", u)
	}
	if len(d.Findings) == 0 {
		p.line("nothing is wrong with it, as far as was read")
	}
	for _, f := range d.Findings {
		what := strings.TrimSpace(f.Code + " " + f.Reason)
		p.mark(f.Severity == Problem, strings.ToUpper(string(f.Severity)), "%s", strings.TrimPrefix(
			strings.TrimSuffix(what+" ("+f.About+")", " ()"), " "))
		if f.Message != "" {
			p.entry("", "%s", f.Message)
		}
		if f.Fix != "" {
			p.entry("", "fix: %s", f.Fix)
		}
	}
	rows := make([][]string, 0, max(len(d.Facts), len(d.Events)))
	for _, f := range d.Facts {
		rows = append(rows, []string{f.Name, f.Value})
	}
	if err := p.table([]string{"Fact", "Value"}, rows); err != nil {
		return err
	}
	rows = rows[:0]
	for _, e := range d.Events {
		if !p.Wide && len(rows) == maxHosts {
			break
		}
		rows = append(rows, []string{p.age(e.Time), e.Type, e.Reason, e.Object, e.Message})
	}
	if len(rows) > 0 {
		if err := p.table([]string{"Age", "Event", "Reason", "+Object", "Message"}, rows); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, p.String())
	return err
}
