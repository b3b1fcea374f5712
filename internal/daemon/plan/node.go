package plan

import (
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Path is a JSONPath on the Node, such as {.metadata.name}.
type Path string

// NodeFields returns a Lookup for the fields of a Node in unstructured form. If node is nil or lacks a value, the
// Lookup returns the remembered value, so that services start while the API server is unreachable. If there is no
// remembered value either, the Lookup returns a Problem.
func NodeFields(node map[string]any, remembered map[string]string) Lookup[Path] {
	return func(p Path) (string, *contract.Problem) {
		expression := jsonpath.New("").AllowMissingKeys(true)
		if err := expression.Parse(string(p)); err != nil {
			return "", contract.NewProblem(contract.ReasonManifestInvalid, "JSONPath %s: %v", p, err)
		}
		if node != nil {
			var out strings.Builder
			if err := expression.Execute(&out, node); err == nil && out.Len() > 0 {
				return out.String(), nil
			}
		}
		if value := remembered[string(p)]; value != "" {
			return value, nil
		}
		if node == nil {
			return "", contract.NewProblem(contract.ReasonNodePending, "the Node has not been seen yet")
		}
		if strings.Contains(string(p), "hybrid-overlay") {
			return "", contract.NewProblem(contract.ReasonNetworkPending, "the Node has no %s yet", p)
		}
		return "", contract.NewProblem(contract.ReasonNodePending, "the Node has no %s yet", p)
	}
}
