package kubectlwindows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// reportTimeout is how long `kubectl windows why` waits for a node's report, which is only a part of its output.
const reportTimeout = 10 * time.Second

// `below` converts a path to a path relative to C:\var\log, with slashes as in a URL.
func below(path string) string {
	return strings.ReplaceAll(strings.TrimPrefix(path, contract.DirLog+`\`), `\`, "/")
}

// reportText reads the report of a node's daemon, unchanged. A report that is larger than contract.MaxReport is cut,
// and is then not valid.
func (r *reader) reportText(ctx context.Context, node string) ([]byte, error) {
	got, err := r.part(ctx, node, below(contract.PathReport), fmt.Sprintf("bytes=0-%d", contract.MaxReport-1))
	return got.text, err
}

// addReport adds the report of a node's daemon to a diagnosis. Daemons of older releases write no report.
func (r *reader) addReport(ctx context.Context, d *diagnosis.Diagnosis, node string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	text, err := r.reportText(ctx, node)
	var found contract.NodeReport
	if err == nil && json.Unmarshal(text, &found) != nil {
		err = errors.New("the answer is not a report")
	}
	switch {
	case err == nil:
		d.Report(&found, r.now())
	case apierrors.IsForbidden(err):
		d.Facts = append(d.Facts, diagnosis.Fact{Name: "report",
			Value: "not read: you lack the right to get nodes/proxy"})
	case !apierrors.IsNotFound(err):
		d.Facts = append(d.Facts, diagnosis.Fact{Name: "report", Value: "not read: " + err.Error()})
	}
}
