package blueprint

import (
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Where the exporter's serving certificate and key lie on a node.
const (
	PathExporterCertificate = contract.DirTLS + `\certs\tls.crt`
	PathExporterKey         = contract.DirTLS + `\certs\tls.key`
)

// webConfig is the exporter toolkit's file about TLS.
type webConfig struct {
	TLS webTLS `json:"tls_server_config"`
}

type webTLS struct {
	Certificate string `json:"cert_file"`
	Key         string `json:"key_file"`
}

// collectors are what dashboards and recording rules are made from.
func collectors() []string {
	return []string{"cpu", "logical_disk", "net", "os", "service", "system", "container", "memory", "cpu_info"}
}

// exporter serves the node's metrics over TLS. Where nothing brings it a key, it serves them to the node itself only: never in the clear over the
// network.
func exporter(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(FeatureMetrics, contract.PathWindowsExporter); ok {
		return off, nil
	}
	words := []string{
		contract.PathWindowsExporter,
		"--collectors.enabled=" + strings.Join(collectors(), ","),
	}
	var p part
	if in.ExporterTLS {
		words = append(words, "--web.config.file="+contract.PathExporterWebConfig)
		content, err := yaml.Marshal(webConfig{TLS: webTLS{Certificate: PathExporterCertificate, Key: PathExporterKey}})
		if err != nil {
			return part{}, rendering(contract.PathExporterWebConfig, err)
		}
		p.files = []contract.File{{Path: contract.PathExporterWebConfig, Content: string(content), Services: []string{contract.ServiceExporter}}}
	} else {
		words = append(words, "--web.listen-address=127.0.0.1:"+strconv.Itoa(contract.MetricsPort))
		p.off = []Off{{Feature: FeatureMetrics, Reason: "nodes get no key and certificate for windows_exporter, so it listens on 127.0.0.1 only"}}
	}
	words = append(words, "--log.level="+level(in.Spec.Logging.Debug), "--log.file="+logFile("windows_exporter", "windows_exporter"))
	p.services = []contract.Service{{Name: contract.ServiceExporter, Command: command(words...), Priority: 2}}
	return p, nil
}
