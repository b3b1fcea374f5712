package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Style is how text is printed.
type Style struct {
	Now time.Time
	// Wide shows every host, and all columns.
	Wide bool
	// Color is for terminals.
	Color bool
	// Width is how many columns a terminal has, or zero: nothing is folded then.
	Width int
}

// hang is where the text of a mark begins, and where it goes on when it is folded.
const hang = 11

// Bounds of one screen.
const (
	maxHosts  = 20 // how many rows; -o wide has no bound
	maxGroups = 10
	maxNamed  = 5 // names in a list
	barWidth  = 30
)

// Visible shows what a terminal would obey, or what would show letters in another order than they are
// in: hosts and users write what is printed. Ends of lines and tabs stay.
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

// paper collects text. What comes from the API server is made visible, and begins no line.
type paper struct {
	strings.Builder
	Style
}

// visible are values to print, of which further lines are indented as those of a mark are.
func visible(args []any) []any {
	shown := make([]any, 0, len(args))
	for _, a := range args {
		if v := reflect.ValueOf(a); v.Kind() == reflect.String {
			a = strings.ReplaceAll(Visible(v.String()), "\n", "\n"+strings.Repeat(" ", hang))
		}
		shown = append(shown, a)
	}
	return shown
}

func (p *paper) line(format string, args ...any) {
	p.WriteString(p.fold(strings.TrimRight(fmt.Sprintf(format, visible(args)...), " ")) + "\n")
}

// fold breaks lines that are wider than the terminal between words. A word that is wider stays whole.
func (p *paper) fold(text string) string {
	if p.Width <= 2*hang {
		return text
	}
	var folded []string
	for line := range strings.SplitSeq(text, "\n") {
		rest := []rune(line)
		for len(rest) > p.Width {
			cut := p.Width
			for cut > hang && rest[cut] != ' ' {
				cut--
			}
			if cut == hang {
				break
			}
			folded = append(folded, strings.TrimRight(string(rest[:cut]), " "))
			rest = []rune(strings.Repeat(" ", hang) + strings.TrimLeft(string(rest[cut:]), " "))
		}
		folded = append(folded, string(rest))
	}
	return strings.Join(folded, "\n")
}

// mark prints a line that begins with a word in colour: red, or yellow.
func (p *paper) mark(bad bool, word, format string, args ...any) {
	shown := fmt.Sprintf("%-10s", word)
	text := strings.TrimPrefix(p.fold(strings.TrimRight(shown+" "+fmt.Sprintf(format, visible(args)...), " ")), shown)
	if p.Color {
		shown = fmt.Sprintf("\x1b[%dm%s\x1b[0m", map[bool]int{true: 31, false: 33}[bad], shown)
	}
	p.WriteString(shown + text + "\n")
}

func (p *paper) age(t metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(p.Now.Sub(t.Time))
}

// table prints rows below their headers. Columns whose header begins with + are for -o wide.
func (p *paper) table(headers []string, rows [][]any) error {
	table := &metav1.Table{}
	for _, h := range headers {
		name, wide := strings.CutPrefix(h, "+")
		column := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if wide {
			column.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, column)
	}
	for _, cells := range rows {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: visible(cells)})
	}
	p.WriteString("\n")
	return printers.NewTablePrinter(printers.PrintOptions{Wide: p.Wide}).PrintObj(table, &p.Builder)
}

// Print writes a status for people. Without Wide it fits on a screen, however many hosts there are.
func (s *Status) Print(out io.Writer, style Style) error {
	p := &paper{Style: style}
	s.printOperator(p)
	c := s.Instances
	p.line("%-10s %s: %d Ready, %d joining, %d failing, %d leaving; %s not Ready", "FLEET",
		contract.Count(int(c.Total), "host"), c.Ready, c.Joining, c.Failing, c.Leaving,
		contract.Count(int(s.NodesNotReady), "node"))
	s.Rollout.print(p)
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
		p.line("%-10s %s, seen %s ago", "OPERATOR", o.Holder, p.age(*o.Renewed))
	default:
		p.line("%-10s unknown", "OPERATOR")
	}
	var well []string
	for _, c := range s.Prerequisites {
		if (c.Status == metav1.ConditionTrue) != (c.Type == v1alpha1.ConditionDegraded) {
			well = append(well, c.Type+"="+string(c.Status))
			continue
		}
		p.mark(c.Type == v1alpha1.ConditionDegraded || c.Type == v1alpha1.ConditionAvailable, "CONDITION",
			"%s=%s for %s: %s: %s", c.Type, c.Status, p.age(c.LastTransitionTime), c.Reason, c.Message)
	}
	if len(well) > 0 {
		p.line("%-10s %s", "CONDITION", strings.Join(well, ", "))
	}
}

func (r *Rollout) print(p *paper) {
	if r.Revision == "" {
		p.line("%-10s no revision is published", "ROLLOUT")
		return
	}
	p.line("%-10s %s %s %s %d/%d updated, %d have the payload", "ROLLOUT", r.Revision, r.Phase,
		bar(int(r.Updated), int(r.Total)), r.Updated, r.Total, r.Staged)
	if r.Phase == v1alpha1.RolloutHalted {
		p.mark(true, "HALTED", "%s", r.Message)
	} else if r.Phase != v1alpha1.RolloutIdle {
		p.line("%-10s %s", "", r.Message)
	}
	places := make([]string, 0, len(r.Places))
	for _, one := range r.Places {
		doing := strings.TrimSpace(string(one.Purpose) + " " + string(one.Step))
		places = append(places, fmt.Sprintf("%s (%s %s)", one.Node, doing, p.age(one.Since)))
	}
	p.line("%-10s maxUnavailable %s, %d unavailable, %d disrupted%s", "BUDGET", r.MaxUnavailable, r.Unavailable,
		len(places), after(": ", named(places)))
	if r.Closed != "" {
		p.mark(false, "WINDOW", "%s", r.Closed)
	}
	for _, f := range r.Failures[:min(maxNamed, len(r.Failures))] {
		p.mark(true, "FAILED", "%s at %s, %s ago: %s %s", f.Node, f.Revision, p.age(f.Time), f.Code, f.Message)
	}
}

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
			named(g.Hosts))
		if g.Message != "" {
			p.line("%-10s %s", "", short(g.Message))
		}
		if g.Fix != "" {
			p.line("%-10s fix: %s", "", short(g.Fix))
		}
	}
}

func (s *Status) printHosts(p *paper) error {
	if len(s.Hosts) == 0 && len(s.Unread) > 0 {
		return nil // nobody can say whether there are any
	}
	if len(s.Hosts) == 0 {
		p.line("\nno hosts: add one with kubectl windows add ADDRESS --username NAME")
		return nil
	}
	var rows [][]any
	well := 0
	for _, h := range s.Hosts {
		isWell := h.Ready && h.Reason == "" && h.NodeReady == "True"
		if !p.Wide && len(s.Hosts) > maxHosts && (isWell || len(rows) == maxHosts) {
			if isWell {
				well++
			}
			continue
		}
		phase := strings.TrimSuffix(string(h.Phase)+"/"+string(h.Step), "/")
		rows = append(rows, []any{h.Name, phase, cmp.Or(h.Code, h.Reason, "-"), p.age(h.Since),
			cmp.Or(h.NodeReady, "-"), cmp.Or(h.Revision, "-"), cmp.Or(h.Desired, "-"), cmp.Or(h.Node, "-"),
			h.Address, h.Reason, h.Message})
	}
	// the first six fit 80 columns; reasons have their names above
	if err := p.table([]string{"Host", "Phase", "Code", "Since", "Ready", "Version", "+Desired", "+Node", "+Address",
		"+Reason", "+Message"}, rows); err != nil {
		return err
	}
	if left := len(s.Hosts) - len(rows); left > 0 {
		p.line("%d more hosts, %d of them Ready without anything to do: -o wide shows all", left, well)
	}
	return nil
}

// bar draws how much of a total is done.
func bar(done, total int) string {
	filled := 0
	if total > 0 {
		filled = barWidth * min(done, total) / total
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", barWidth-filled) + "]"
}

// named joins the first few of a list and says how many there are more.
func named(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// short leaves of a text what fits on a few lines.
func short(text string) string {
	const most = 300
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// after puts a word before a text that is not empty.
func after(word, text string) string {
	if text == "" {
		return ""
	}
	return word + text
}

// Print writes a diagnosis for people: symptom, causes, fixes, then what else is known.
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
			p.line("%-10s %s", "", f.Message)
		}
		if f.Fix != "" {
			p.line("%-10s fix: %s", "", f.Fix)
		}
	}
	rows := make([][]any, 0, max(len(d.Facts), len(d.Events)))
	for _, f := range d.Facts {
		rows = append(rows, []any{f.Name, f.Value})
	}
	if err := p.table([]string{"Fact", "Value"}, rows); err != nil {
		return err
	}
	rows = rows[:0]
	for _, e := range d.Events {
		if !p.Wide && len(rows) == maxHosts {
			break
		}
		rows = append(rows, []any{p.age(e.Time), e.Type, e.Reason, e.Object, e.Message})
	}
	if len(rows) > 0 {
		if err := p.table([]string{"Age", "Event", "Reason", "+Object", "Message"}, rows); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, p.String())
	return err
}
