package program

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// The function collectors returns the names of windows_exporter's collectors whose metrics describe a node.
func collectors() []string {
	return []string{
		"cache", "container", "cpu", "cpu_info", "cs", "diskdrive", "filetime", "hyperv", "license", "logical_disk",
		"memory", "mscluster", "net",
		"os", "pagefile", "performancecounter", "physical_disk", "printer", "process", "scheduled_task", "service",
		"smb", "smbclient", "system",
		"tcp", "terminal_services", "textfile", "thermalzone", "time", "udp", "update", "vmware",
	}
}

// exporter validates its flags and its TLS configuration. With a TLS configuration, it serves metrics over TLS. Like
// the exporter toolkit, it reads the key pair from its files for each connection.
func exporter(ctx context.Context, p *sim.Process) int {
	flags := newFlags("windows_exporter")
	enabled := flags.String("collectors.enabled", "", "")
	web := flags.String("web.config.file", "", "")
	listen := flags.String("web.listen-address", ":"+strconv.Itoa(contract.MetricsPort), "")
	logFile := flags.String("log.file", "", "")
	level := flags.String("log.level", "info", "")
	tolerate(flags, "web.disable-exporter-metrics config.file.insecure-skip-verify",
		"collector.textfile.directories config.file log.format telemetry.path scrape.timeout-margin process.priority")
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
	keyPair, err := readWebConfig(p.Host.Files, *web)
	if err != nil {
		return refuse(p, fmt.Errorf("reading the web configuration: %w", err))
	}
	service := idle{name: "windows_exporter", logFile: *logFile, port: port}
	if keyPair == nil {
		return service.run(ctx, p)
	}
	listener, err := p.ListenTCP(ctx, port)
	if err != nil {
		return refuse(p, err)
	}
	service.port = 0
	stop := serveTLS(listener, keyPair, metrics{p, p.Host.System.Now()})
	defer stop()
	return service.run(ctx, p)
}

// serveTLS starts to serve over TLS. The function stop closes the server and all connections.
func serveTLS(listener net.Listener, keyPair func() (*tls.Certificate, error),
	handler http.Handler) (stop func()) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			ClientAuth:     tls.RequestClientCert, // the handler decides whether the client needs a certificate
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return keyPair() },
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "") // returns an error when the server is closed
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}

// readWebConfig reads the TLS configuration and the key pair that the configuration names. It returns a function that
// reads the key pair again. If path is empty, it returns nil.
func readWebConfig(files winos.Files, path string) (keyPair func() (*tls.Certificate, error), err error) {
	if path == "" {
		return nil, nil
	}
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return nil, err
	}
	var config struct {
		TLS struct {
			Certificate string `json:"cert_file"`
			Key         string `json:"key_file"`
		} `json:"tls_server_config"`
	}
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	keyPair = func() (*tls.Certificate, error) { return loadKeyPair(files, config.TLS.Certificate, config.TLS.Key) }
	if _, err := keyPair(); err != nil {
		return nil, err
	}
	return keyPair, nil
}

func loadKeyPair(files winos.Files, certificatePath, keyPath string) (*tls.Certificate, error) {
	certificate, err := winos.ReadFile(files, certificatePath)
	if err != nil {
		return nil, err
	}
	key, err := winos.ReadFile(files, keyPath)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("loading the key pair: %w", err)
	}
	return &pair, nil
}
