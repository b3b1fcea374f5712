package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/windows-nodes/wmco/internal/contract"
)

// maxText is the maximum length of an annotation with a problem, in characters. Longer text is cut at the end.
const maxText = 512

// timeout limits a request about one object. readTimeout limits a request that lists objects or starts a watch. Without
// a limit, a request could wait forever, because a proxy may keep its connection open although the API server is dead.
const (
	timeout     = 15 * time.Second
	readTimeout = time.Minute
)

var errNoAnswer = errors.New("the API server has not answered in time")

// AnnotateNode sets annotations of a Node. If a value in `changes` is nil, the annotation is removed. AnnotateNode also
// stores the updated Node in the Watch, unless the Watch has received a newer Node. It returns all annotations.
func AnnotateNode(ctx context.Context, client dynamic.Interface, watched *Watch, before *unstructured.Unstructured,
	changes map[string]any) (map[string]string, error) {
	name := before.GetName()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return nil, fmt.Errorf("encoding the Node's annotations: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	defer cancel()
	nodes := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	updated, err := nodes.Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: contract.ServiceDaemon})
	if err != nil {
		return nil, fmt.Errorf("annotating node %s: %w", name, err)
	}
	annotations := updated.GetAnnotations()
	watched.Replace(before, updated)
	return annotations, nil
}

// ProblemText returns a problem as one short line.
func ProblemText(p *contract.Problem) string {
	return contract.OneLine(string(p.Reason)+": "+p.Detail, maxText)
}
