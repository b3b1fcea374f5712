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

// timeout bounds a request about one object. readTimeout bounds a request that lists objects or starts a watch. A proxy
// or a load balancer may keep a connection open although the API server doesn't answer.
const (
	timeout     = 15 * time.Second
	readTimeout = time.Minute
)

var errNoAnswer = errors.New("the API server has not answered in time")

// AnnotateNode sets annotations of a Node. A nil value in changes removes the annotation. AnnotateNode also stores the
// updated Node in watched, unless watched has received a newer one. It returns all annotations of the updated Node.
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
