package acceptance

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/docs"
)

// Verdict is the result of testing a row.
type Verdict string

// The verdicts.
const (
	Shown   Verdict = "shown"
	Failed  Verdict = "failed"
	Unshown Verdict = "can't be shown here"
)

// Categories of the Windows operational readiness specification (KEP-2578). Some rows belong to one of them.
const (
	coreNetwork    = "Core.Network"
	coreStorage    = "Core.Storage"
	coreScheduling = "Core.Scheduling"
	coreConcurrent = "Core.Concurrent"
	extendNetwork  = "Extend.Network"
	extendWorker   = "Extend.Worker"
)

// stage orders the rows: each stage leaves the cluster in the state that the next stage needs.
type stage int

const (
	stageLook    stage = iota // before anything is changed
	stageJoin                 // hosts become nodes
	stageNodes                // needs nodes
	stageDisrupt              // changes that others may notice
	stageLeave                // hosts leave
)

// trial defines how to test one row.
type trial struct {
	stage stage
	// shows says which part of the row a run can show. Empty means the whole row.
	shows string
	// disrupts lists the disruptions that the user must allow.
	disrupts []Disruption
	// needs lists the features that the cluster must have.
	needs []Need
	// readiness lists categories of the Windows operational readiness specification.
	readiness []string
	// unrun: no one has run the row yet on a cluster that can show it.
	unrun bool
	try   func(ctx context.Context, r *run) error
	// If no run can show the row, the field `why` contains the reason, and try is nil.
	why string
}

// Row is a row of the acceptance list.
type Row struct {
	Number, Section, Title string
	trial
}

var (
	sectionOfPage = regexp.MustCompile(`^## (.+)$`)
	rowOfPage     = regexp.MustCompile(`^\| <a id="(A\d\d)"></a>A\d\d \| (.+?) \| *W? *C? *\|$`)
	linkOfPage    = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
)

// Rows returns all rows of the acceptance list, with their trials.
func Rows() ([]Row, error) {
	return rowsOf("the acceptance list", docs.Acceptance, rowOfPage, trials(),
		func(_, _ string, t trial) trial { return t })
}

// rowsOf reads the rows of a page. The expression match finds each row's number and title. The function made creates a
// row's trial from its number, its line and its value in the map known. The page and the map must contain the same
// rows.
func rowsOf[T any](what, page string, match *regexp.Regexp, known map[string]T,
	made func(number, line string, of T) trial) ([]Row, error) {
	var rows []Row
	section := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if found := sectionOfPage.FindStringSubmatch(line); found != nil {
			section = found[1]
		}
		found := match.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		number := found[1]
		of, ok := known[number]
		if !ok {
			return nil, fmt.Errorf("row %s of %s is not known to this program", number, what)
		}
		delete(known, number)
		title := strings.NewReplacer("`", "", `\|`, "|").Replace(linkOfPage.ReplaceAllString(found[2], "$1"))
		rows = append(rows, Row{Number: number, Section: section, Title: title, trial: made(number, line, of)})
	}
	for number := range known {
		return nil, fmt.Errorf("%s has no row %s", what, number)
	}
	return rows, nil
}

// inOrder sorts rows by their stages.
func inOrder(rows []Row) []Row {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int { return int(a.stage) - int(b.stage) })
	return rows
}

// unshowable is the error of a row that can't be shown on this cluster. It doesn't count as a failure.
type unshowable struct{ reason string }

// Error returns the reason.
func (u *unshowable) Error() string { return u.reason }

// The function `cannot` returns an error that says why a row can't be shown on this cluster.
func cannot(format string, args ...any) error {
	return &unshowable{reason: fmt.Sprintf(format, args...)}
}

// wrong is an error for a wrong state of the cluster. Waiting doesn't help, unlike after a request that failed.
type wrong struct{ what string }

// Error says what is wrong.
func (w *wrong) Error() string { return w.what }

func wrongf(format string, args ...any) error { return &wrong{what: fmt.Sprintf(format, args...)} }
