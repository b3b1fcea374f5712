package blueprint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

// If all nodes had the same key, a node could serve metrics in the name of another node.
func TestA53_EachNodesExporterServesWithTheNodesOwnKey(t *testing.T) {
	t.Parallel()
	desired := render(t, input())
	exporter := service(t, desired, contract.ServiceExporter)
	if exporter.RequiresFile != contract.PathKubeletServingPair || exporter.Bootstrap ||
		!strings.Contains(exporter.Command, "--web.config.file="+contract.PathExporterWebConfig) ||
		strings.Contains(exporter.Command, "listen-address") {
		t.Errorf("the exporter is %+v", exporter)
	}
	i := slices.IndexFunc(desired.Manifest.Files, func(f contract.File) bool {
		return f.Path == contract.PathExporterWebConfig
	})
	if i < 0 {
		t.Fatal("the exporter has no web configuration")
	}
	pair := contract.PathKubeletServingPair
	if want := "tls_server_config:\n  cert_file: " + pair + "\n  key_file: " + pair + "\n"; desired.Manifest.
		Files[i].Content != want {
		t.Errorf("web configuration:\n%s", desired.Manifest.Files[i].Content)
	}
	if len(desired.Confidential.Files) > 0 {
		t.Errorf("all nodes get %+v", desired.Confidential.Files)
	}
}
