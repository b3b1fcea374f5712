package program

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/sim"
)

// collectors are those of windows_exporter, as far as they say something about a node.
func collectors() []string {
	return []string{
		"cache", "container", "cpu", "cpu_info", "cs", "diskdrive", "filetime", "hyperv", "license", "logical_disk", "memory", "mscluster", "net",
		"os", "pagefile", "performancecounter", "physical_disk", "printer", "process", "scheduled_task", "service", "smb", "smbclient", "system",
		"tcp", "terminal_services", "textfile", "thermalzone", "time", "udp", "update", "vmware",
	}
}

// exporter checks its flags and TLS configuration, and serves no metrics.
func exporter(ctx context.Context, p *sim.Process) int {
	flags := newFlags("windows_exporter")
	enabled := flags.String("collectors.enabled", "", "")
	web := flags.String("web.config.file", "", "")
	listen := flags.String("web.listen-address", ":"+strconv.Itoa(contract.MetricsPort), "")
	log := flags.String("log.file", "", "")
	level := flags.String("log.level", "info", "")
	tolerate(flags, "web.disable-exporter-metrics config.file.insecure-skip-verify", "config.file log.format telemetry.path scrape.timeout-margin process.priority")
	if err := parse(flags, p.Args[1:]); err != nil {
		return refuse(p, err)
	}
	for name := range strings.SplitSeq(*enabled, ",") {
		if name != "" && name != "[defaults]" && !slices.Contains(collectors(), name) {
			return refuse(p, fmt.Errorf("unknown collector %s", name))
		}
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, *level) {
		return refuse(p, fmt.Errorf("unrecognized log level %s", *level))
	}
	_, text, err := net.SplitHostPort(*listen)
	if err != nil {
		return refuse(p, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return refuse(p, fmt.Errorf("reading the port of %s: %w", *listen, err))
	}
	if err := checkWebConfig(p.Host.Files, *web); err != nil {
		return refuse(p, fmt.Errorf("reading the web configuration: %w", err))
	}
	return idle{name: "windows_exporter", logFile: *log, port: port}.run(ctx, p)
}

// checkWebConfig reads the TLS configuration and loads the key pair that it names.
func checkWebConfig(files winos.Files, path string) error {
	if path == "" {
		return nil
	}
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return err
	}
	var config struct {
		TLS struct {
			Certificate string `json:"cert_file"`
			Key         string `json:"key_file"`
		} `json:"tls_server_config"`
	}
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	certificate, err := winos.ReadFile(files, config.TLS.Certificate)
	if err != nil {
		return err
	}
	key, err := winos.ReadFile(files, config.TLS.Key)
	if err != nil {
		return err
	}
	if _, err = tls.X509KeyPair(certificate, key); err != nil {
		return fmt.Errorf("loading the key pair: %w", err)
	}
	return nil
}
