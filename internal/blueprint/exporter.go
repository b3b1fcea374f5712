package blueprint

import (
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// collectors returns the names of windows_exporter's collectors to enable. Dashboards and recording rules use their
// metrics. Exception: the collector textfile is for the daemon's own metrics.
func collectors() []string {
	return []string{"cpu", "logical_disk", "net", "os", "service", "system", "container", "memory", "cpu_info",
		"textfile"}
}

// exporter renders the service of windows_exporter, which serves the node's metrics over TLS with kubelet's serving
// certificate. The exporter reads the certificate file for each connection, but doesn't start without the file. kubelet
// writes the file only after the Node has addresses and the certificate request is approved.
func exporter(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(payload.FeatureMetrics, contract.PathWindowsExporter); ok {
		return off, nil
	}
	content, err := yaml.Marshal(table{"tls_server_config": table{"cert_file": contract.PathKubeletServingPair,
		"key_file": contract.PathKubeletServingPair}})
	if err != nil {
		return part{}, rendering(contract.PathExporterWebConfig, err)
	}
	file := contract.LogFile(contract.ServiceExporter)
	return part{
		files: []contract.File{{Path: contract.PathExporterWebConfig, Content: string(content),
			Services: []string{contract.ServiceExporter}}},
		services: []contract.Service{{
			// The service manager must be the exporter's parent process, so kube-log-runner can't run the exporter.
			Name: contract.ServiceExporter, Command: command(contract.PathWindowsExporter,
				"--collectors.enabled="+strings.Join(collectors(), ","),
				"--collector.textfile.directories="+contract.DirMetrics,
				"--web.config.file="+contract.PathExporterWebConfig,
				"--log.level="+level(in.Spec.Logging.Debug), "--log.file="+file),
			Priority: 2, Log: in.Logging.log(file, false), RequiresFile: contract.PathKubeletServingPair,
		}},
	}, nil
}
