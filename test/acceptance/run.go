package acceptance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// cleanupTimeout is the time limit of the clean-up after an interruption, in addition to LeaveTimeout.
const cleanupTimeout = 5 * time.Minute

// run is one run of the acceptance list on one cluster.
type run struct {
	Options
	id      string
	client  client.Client
	clients kubernetes.Interface
	// availability is shared by all requests to the API server.
	availability *availability
	cluster      Cluster
	// nodes are the hosts that this run listed and that became nodes.
	nodes []node
	// unsafe is the message of the condition Upgradeable while hosts joined.
	unsafe string
	// shown contains the rows that this run has shown so far.
	shown map[string]bool
	// hostless maps a node's name to the reason why no HostProcess pod starts on the node.
	hostless map[string]string
	// notes are the notes of the current row.
	notes []string
	mu    sync.Mutex
}

// node is a host that this run listed and that became a node.
type node struct {
	Host Host
	Name string
}

// Result is the result of testing one row.
type Result struct {
	Row
	Verdict Verdict
	// Reason says why the row failed or can't be shown.
	Reason string
	// Notes describe the observations of the row.
	Notes []string
	Took  time.Duration
}

// Report is the result of a run.
type Report struct {
	Cluster  Cluster
	Began    time.Time
	Took     time.Duration
	Results  []Result
	Cleaned  []string
	Leftover string
	// Interrupted: the run was interrupted, so the remaining rows were not tested.
	Interrupted bool
}

// Count returns how many rows have a verdict.
func (r Report) Count(v Verdict) (count int) {
	for _, result := range r.Results {
		if result.Verdict == v {
			count++
		}
	}
	return count
}

func newRun(options Options) (*run, error) {
	r := &run{Options: options.defaulted(), shown: map[string]bool{}, hostless: map[string]string{}}
	random := make([]byte, 4)
	_, _ = rand.Read(random) // it never fails
	r.id = hex.EncodeToString(random)
	r.availability = &availability{say: r.say, limit: r.Outage}
	var err error
	r.client, r.clients, err = connect(r.Config, r.availability)
	return r, err
}

// Run tests all rows. If the run can't begin, Run returns an error. Failures of rows are in the report.
func Run(ctx context.Context, options Options) (report Report, err error) {
	rows, err := options.rows()
	if err != nil {
		return report, err
	}
	r, err := newRun(options)
	if err != nil {
		return report, err
	}
	report.Began = time.Now()
	if report.Cluster, err = look(ctx, r); err != nil {
		return report, err
	}
	r.cluster = report.Cluster
	r.say("%s", report.Cluster)
	if report.Cleaned, err = sweep(ctx, r, false); err != nil {
		return report, fmt.Errorf("removing what an earlier run left: %w", err)
	}
	stop, err := begin(ctx, r)
	if err != nil {
		return report, err
	}
	report.Results = r.try(ctx, rows)
	stop()
	report.Interrupted = ctx.Err() != nil
	r.availability.expect(true)
	// The clean-up also runs after an interruption, so it must not use the cancelled context.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.LeaveTimeout+cleanupTimeout)
	defer cancel()
	cleaned, err := sweep(end, r, true)
	if err != nil {
		report.Leftover = diagnosis.Visible(err.Error())
		r.say("not cleaned up: %v", err)
	}
	report.Cleaned = append(report.Cleaned, cleaned...)
	report.Took = time.Since(report.Began)
	return report, nil
}

// Cleanup removes what earlier runs left, and lists the removed objects.
func Cleanup(ctx context.Context, options Options) ([]string, error) {
	r, err := newRun(options)
	if err != nil {
		return nil, err
	}
	if _, err = r.version(); err != nil {
		return nil, err
	}
	return sweep(ctx, r, false)
}

// try tests the rows in the order of their stages, and returns the results in the order of the page.
func (r *run) try(ctx context.Context, rows []Row) []Result {
	results := map[string]Result{}
	collected := false
	for _, row := range inOrder(rows) {
		if row.stage == stageLeave && !collected {
			r.Evidence.Collect(ctx) // while the hosts are still nodes
			collected = true
		}
		result := Result{Row: row}
		began := time.Now()
		r.notes = nil
		verdict, reason := judge(r.attempt(ctx, row))
		result.Verdict, result.Reason, result.Took = verdict, diagnosis.Visible(reason), time.Since(began)
		for _, note := range r.notes {
			result.Notes = append(result.Notes, diagnosis.Visible(note))
		}
		results[row.Number], r.shown[row.Number] = result, result.Verdict == Shown
		if row.try != nil || result.Verdict != Unshown {
			r.say("%s %s%s", row.Number, result.Verdict, after(": ", result.Reason))
		}
	}
	all := make([]Result, len(rows))
	for i, row := range rows {
		all[i] = results[row.Number]
	}
	return all
}

// attempt tests one row if the options and the cluster permit it.
func (r *run) attempt(ctx context.Context, row Row) error {
	switch {
	case !r.wants(row.Number):
		return cannot("the row was not requested")
	case ctx.Err() != nil:
		return cannot("the run was interrupted before this row")
	}
	for _, need := range row.needs {
		if why, lacks := r.Lacks[need]; lacks {
			return cannot("%s", why)
		}
	}
	if row.unrun && !r.NeverRun && !slices.Contains(r.Only, row.Number) {
		return cannot("no one has run this row yet: use --never-run to test it")
	}
	if row.try == nil {
		return cannot("%s", row.why)
	}
	for _, d := range row.disrupts {
		if !r.allows(d) {
			return cannot("the disruption is not allowed: use --disrupt=%s to allow it", d)
		}
	}
	if err := r.answers(ctx); err != nil {
		return cannot("the API server does not answer: %v", err)
	}
	err := row.try(ctx, r)
	switch {
	case ctx.Err() != nil:
		return cannot("the run was interrupted meanwhile")
	case err != nil && r.availability.isAway():
		return cannot("the API server went away meanwhile: %v", err)
	}
	return err
}

// The method `answers` sends one more request to an API server that did not answer. If the server still doesn't answer,
// the next rows are skipped, so that they don't each wait for the server.
func (r *run) answers(ctx context.Context) error {
	if !r.availability.isAway() {
		return nil
	}
	return r.clients.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

func (r *run) allows(d Disruption) bool {
	return slices.Contains(r.Disrupt, d)
}

// judge returns the verdict for an error. If one of several errors is a failure, the verdict is a failure.
func judge(err error) (Verdict, string) {
	cannot := (*unshowable)(nil)
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			if verdict, _ := judge(one); verdict == Failed {
				return Failed, err.Error()
			}
		}
	}
	switch {
	case err == nil:
		return Shown, ""
	case errors.As(err, &cannot):
		return Unshown, cannot.reason
	case apierrors.IsForbidden(err):
		return Unshown, "a right is lacking: " + err.Error()
	}
	return Failed, err.Error()
}

// say prints progress. It removes control characters, because the text may contain output of hosts and users.
func (r *run) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := diagnosis.Visible(fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintf(r.Progress, "%s %s\n", time.Now().UTC().Format(time.TimeOnly), text)
}

// note adds an observation of the current row to the report.
func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// await polls until a condition holds. If the state can't be read, await continues to poll. If the state is wrong,
// await returns the error at once.
func (r *run) await(ctx context.Context, timeout time.Duration, what string,
	holds func(ctx context.Context) (bool, string, error)) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, r.Pace, timeout, true, func(ctx context.Context) (bool, error) {
		ok, now, err := holds(ctx)
		if bad := (*wrong)(nil); errors.As(err, &bad) {
			return false, err
		}
		if err != nil {
			now = err.Error()
		}
		if now != "" {
			last = now
		}
		return ok && err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("%s took longer than %s%s", what, timeout, after(": ", last))
	}
	return fmt.Errorf("waiting for %s: %w", what, err)
}

// The function `after` returns a prefix and a text. If the text is empty, it returns an empty string.
func after(before, text string) string {
	if text == "" {
		return ""
	}
	return before + strings.TrimSpace(text)
}
