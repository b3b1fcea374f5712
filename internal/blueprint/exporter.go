package blueprint

import (
	"crypto/tls"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
)

// webConfig is the exporter toolkit's file about TLS.
type webConfig struct {
	TLS webTLS `json:"tls_server_config"`
}

type webTLS struct {
	Certificate string `json:"cert_file"`
	Key         string `json:"key_file"`
}

// collectors are what dashboards and recording rules are made from, and textfile for what the
// daemon itself counts.
func collectors() []string {
	return []string{"cpu", "logical_disk", "net", "os", "service", "system", "container", "memory", "cpu_info",
		"textfile"}
}

// exporter serves the node's metrics over TLS. Where nothing brings it a key, it serves them to the
// node itself only: never in the clear over the network.
func exporter(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(FeatureMetrics, contract.PathWindowsExporter); ok {
		return off, nil
	}
	words := []string{
		contract.PathWindowsExporter,
		"--collectors.enabled=" + strings.Join(collectors(), ","),
		"--collector.textfile.directories=" + contract.DirMetrics,
	}
	var p part
	if len(in.keyPair) > 0 {
		words = append(words, "--web.config.file="+contract.PathExporterWebConfig)
		content, err := yaml.Marshal(webConfig{TLS: webTLS{Certificate: contract.PathExporterCertificate,
			Key: contract.PathExporterKey}})
		if err != nil {
			return part{}, rendering(contract.PathExporterWebConfig, err)
		}
		p.files = []contract.File{{Path: contract.PathExporterWebConfig, Content: string(content),
			Services: []string{contract.ServiceExporter}}}
	} else {
		words = append(words, "--web.listen-address=127.0.0.1:"+strconv.Itoa(contract.MetricsPort))
		p.off = []Off{{Feature: FeatureMetrics, Reason: "nodes get no key and certificate for windows_exporter, so " +
			"it listens on 127.0.0.1 only"}}
	}
	file := logFile("windows_exporter", "windows_exporter")
	words = append(words, "--log.level="+level(in.Spec.Logging.Debug), "--log.file="+file)
	p.services = []contract.Service{{
		// It asks whether it was started by the service manager itself, so nothing can run it and
		// write its log.
		Name: contract.ServiceExporter, Command: command(words...), Priority: 2, Log: in.Logging.log(file, false),
	}}
	return p, nil
}

// keyPair are the files with the exporter's certificate and key. They name no service: it reads
// them anew for each connection. A pair that does not fit is not used; nodes keep the one that they
// have.
func keyPair(pair *KeyPair, before contract.Confidential) ([]contract.File, []*contract.Problem) {
	if pair == nil {
		return nil, nil
	}
	if _, err := tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		rejected := []*contract.Problem{
			contract.NewProblem(contract.ReasonExporterKeyInvalid,
				"the secret %s: its certificate and key can't be read, or don't belong together",
				contract.ExporterTLSSecret),
		}
		var kept []contract.File
		for _, f := range before.Files {
			if f.Path == contract.PathExporterCertificate || f.Path == contract.PathExporterKey {
				kept = append(kept, f)
			}
		}
		return kept, rejected
	}
	return []contract.File{
		{Path: contract.PathExporterCertificate, Content: string(pair.Certificate)},
		{Path: contract.PathExporterKey, Content: string(pair.Key)},
	}, nil
}
