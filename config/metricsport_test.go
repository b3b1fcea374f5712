package config_test

import (
	"os"
	"strings"
	"testing"
)

// An exporter is a node's, and a node may be hostile.
func TestA53_NoCredentialGoesToANodesMetricsPort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("monitoring/exporter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"bearerToken", "authorization:", "basicAuth", "oauth2", "honorLabels: true"} {
		if strings.Contains(string(text), wrong) {
			t.Errorf("the exporter's monitor has %s", wrong)
		}
	}
	if !strings.Contains(string(text), "honorLabels: false") {
		t.Error("a node may publish series under the labels of others")
	}
}
