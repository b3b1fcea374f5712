package page_test

import (
	"testing"

	"github.com/windows-nodes/wmco/test/page"
)

const text = `Run kubectl get pods:

    kubectl get pods
    helm install a b

1. Apply:

       kubectl apply -f - <<EOF
       a:
         b: c
       EOF
       kubectl get pods -w
`

func TestACommandIsFoundWithItsHereDocument(t *testing.T) {
	t.Parallel()
	for beginning, want := range map[string]string{
		"kubectl get pods":    "kubectl get pods",
		"kubectl get pods -w": "kubectl get pods -w",
		"helm install":        "helm install a b",
		"kubectl apply":       "kubectl apply -f - <<EOF\na:\n  b: c\nEOF",
	} {
		if got, err := page.Command(text, beginning); err != nil || got != want {
			t.Errorf("%s: %q, %v", beginning, got, err)
		}
	}
	if got, err := page.Command(text, "Run"); err == nil {
		t.Errorf("a line that is not a command was returned as a command: %q", got)
	}
	if got, err := page.Command("    cat <<EOF\n    a", "cat"); err != nil || got != "cat <<EOF\na" {
		t.Errorf("a here-document without an end: %q, %v", got, err)
	}
}
