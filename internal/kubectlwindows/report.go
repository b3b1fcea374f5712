package kubectlwindows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/response"
)

// reportTimeout is how long `kubectl windows why` waits for a node's report. The rest of the command's output doesn't
// need the node.
const reportTimeout = 10 * time.Second

// reportFile returns the path of the daemon's report, relative to C:\var\log.
func reportFile() string { return below(contract.PathReport) }

// below converts a path to a path relative to C:\var\log, with slashes as in a URL.
func below(path string) string {
	return strings.ReplaceAll(strings.TrimPrefix(path, contract.DirLog+`\`), `\`, "/")
}

// reportText reads the report of a node's daemon, unchanged.
func (r *reader) reportText(ctx context.Context, node string) ([]byte, error) {
	answer, err := r.clients.CoreV1().RESTClient().Get().
		AbsPath("/api/v1/nodes/" + node + "/proxy/logs/" + reportFile()).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the report of node %s: %w", node, err)
	}
	text, err := io.ReadAll(response.Body(answer, contract.MaxReport))
	if err = errors.Join(err, answer.Close()); err != nil {
		return nil, fmt.Errorf("reading the report of node %s: %w", node, err)
	}
	return text, nil
}

// addReport reads the report of a node's daemon and adds its content to a diagnosis. Daemons of older releases write no
// report.
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
