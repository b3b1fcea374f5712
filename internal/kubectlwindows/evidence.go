package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// Evidence is an archive as `kubectl windows bundle` makes it, redacted and bounded, to which a trial adds
// what it finds. It may be filled from several goroutines.
type Evidence struct {
	from   collector
	file   *os.File
	status string
}

// NewEvidence creates the archive, which must not be there, readable by the caller alone. The flags say how
// the API server is reached, operator in which namespace the operator is; progress is told what there is of
// each node. Nothing is requested yet.
func NewEvidence(flags *genericclioptions.ConfigFlags, operator, file string, progress io.Writer) (*Evidence, error) {
	p := &plugin{IOStreams: genericiooptions.IOStreams{ErrOut: progress}, flags: flags, operator: operator,
		now: time.Now}
	r, err := p.connect()
	if err != nil {
		return nil, err
	}
	return p.evidence(r, bundleOptions{file: file, logBytes: defaultLogBytes, limit: defaultLimit,
		timeout: defaultTimeout})
}

func (p *plugin) evidence(r *reader, o bundleOptions) (*Evidence, error) {
	if _, err := os.Lstat(o.file); err == nil {
		return nil, fmt.Errorf("creating the archive: %s exists", o.file)
	}
	file, err := os.OpenFile(o.file+partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user's
	if err != nil {
		return nil, fmt.Errorf("creating the archive: %w", err)
	}
	return &Evidence{file: file, from: collector{reader: r, bundleOptions: o, progress: p.ErrOut,
		archive: newArchive(file, o.limit, newRedactor(r.credentials...), p.now())}}, nil
}

// partial ends the name of an archive that is not whole: what it is left with when the program is killed.
const partial = ".partial"

// Name is the archive's path.
func (e *Evidence) Name() string { return e.from.file }

// Add adds a text under a name with slashes. What does not fit is named in the index.
func (e *Evidence) Add(name string, text []byte) { e.from.addFile(name, text) }

// Collect adds what the bundle has: objects, logs and reports of now. It is called once at most.
func (e *Evidence) Collect(ctx context.Context) {
	snapshot, err := e.from.reader.snapshot(ctx, true)
	e.from.lack("summary", err)
	e.fill(ctx, snapshot)
}

// fill adds everything, within the time that a bundle has.
func (e *Evidence) fill(ctx context.Context, snapshot diagnosis.Snapshot) {
	c := &e.from
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	c.snapshot = snapshot
	e.status = c.summary()
	c.objects(ctx)
	c.operatorLogs(ctx)
	c.nodeLogs(ctx)
	for _, problem := range snapshot.Unread {
		c.lack("summary", errors.New(problem))
	}
	c.lack("collecting ended early", ctx.Err())
}

// Close writes the index, and says how many parts are missing.
func (e *Evidence) Close() (missing int, err error) {
	if err = errors.Join(e.from.archive.close(e.status), e.file.Close()); err != nil {
		return 0, fmt.Errorf("writing %s: %w", e.file.Name(), err)
	}
	if err = os.Rename(e.file.Name(), e.from.file); err != nil {
		return 0, fmt.Errorf("giving the archive its name: %w", err)
	}
	return len(e.from.problems), nil
}
