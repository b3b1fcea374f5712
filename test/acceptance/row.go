package acceptance

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/docs"
)

// Verdict is the result of a row.
type Verdict string

// Verdicts.
const (
	Shown   Verdict = "shown"
	Failed  Verdict = "failed"
	Unshown Verdict = "can't be shown here"
)

// Categories of the Windows operational readiness specification (KEP-2578), where a row has one.
const (
	coreNetwork    = "Core.Network"
	coreStorage    = "Core.Storage"
	coreScheduling = "Core.Scheduling"
	coreConcurrent = "Core.Concurrent"
	extendNetwork  = "Extend.Network"
	extendWorker   = "Extend.Worker"
)

// stage is when a row is tried: each leaves the cluster as the next needs it.
type stage int

const (
	stageLook    stage = iota // before anything is changed
	stageJoin                 // hosts become nodes
	stageNodes                // there are nodes
	stageDisrupt              // what others may notice
	stageLeave                // hosts leave
)

// trial is how one row is tried.
type trial struct {
	stage stage
	// shows is what of the row a run can show. Empty means all of it.
	shows string
	// disrupts is what the user must have allowed.
	disrupts []Disruption
	// needs are what the cluster must have.
	needs []Need
	// readiness are categories of the Windows operational readiness specification.
	readiness []string
	// unrun says that the row was written, and has never been run where it could be shown.
	unrun bool
	try   func(ctx context.Context, r *run) error
	// why says why no run can show the row; try is nil then.
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

// Rows are all rows of the page, with how they are tried.
func Rows() ([]Row, error) {
	return rowsOf("the acceptance list", docs.Acceptance, rowOfPage, trials(),
		func(_, _ string, t trial) trial { return t })
}

// rowsOf reads the rows of a page whose lines match, by number and title. made creates each row's trial from the
// number, the line and the known data of the number. Each row must be known, and each known row must exist.
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
			return nil, fmt.Errorf("row %s of %s is not known here", number, what)
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

// inOrder sorts rows as they are tried.
func inOrder(rows []Row) []Row {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int { return int(a.stage) - int(b.stage) })
	return rows
}

// unshowable is the outcome of a row that can't be shown on this cluster. It is no failure.
type unshowable struct{ reason string }

// Error is the reason.
func (u *unshowable) Error() string { return u.reason }

// cannot says why a row can't be shown here.
func cannot(format string, args ...any) error {
	return &unshowable{reason: fmt.Sprintf(format, args...)}
}

// wrong is a failure of a row, as opposed to a request that did not succeed: it does not go away by
// waiting.
type wrong struct{ what string }

// Error is what is wrong.
func (w *wrong) Error() string { return w.what }

func wrongf(format string, args ...any) error { return &wrong{what: fmt.Sprintf(format, args...)} }
