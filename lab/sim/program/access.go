package program

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Limits of the client. Package blueprint sets the same values for kubelet.
const (
	clientQPS   = 50
	clientBurst = 100
	dialTimeout = 30 * time.Second
)

// loadKubeconfig reads a kubeconfig on the machine and the files that the kubeconfig names.
func loadKubeconfig(files winos.Files, path string) (*rest.Config, error) {
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return nil, fmt.Errorf("loading kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, fmt.Errorf("loading kubeconfig %s: %w", path, err)
	}
	inline := func(name *string, data *[]byte) {
		if *name != "" && len(*data) == 0 && err == nil {
			*data, err = winos.ReadFile(files, *name)
		}
		*name = ""
	}
	var refreshed transport.WrapperFunc
	for _, c := range config.Clusters {
		inline(&c.CertificateAuthority, &c.CertificateAuthorityData)
	}
	for _, a := range config.AuthInfos {
		inline(&a.ClientCertificate, &a.ClientCertificateData)
		inline(&a.ClientKey, &a.ClientKeyData)
		// The token file may change, so fileToken reads it for each request.
		if path := a.TokenFile; path != "" && err == nil {
			var token []byte
			inline(&a.TokenFile, &token)
			refreshed = func(rt http.RoundTripper) http.RoundTripper { return fileToken{files, path, rt} }
		}
	}
	if err != nil {
		return nil, fmt.Errorf("loading kubeconfig %s: %w", path, err)
	}
	client, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("loading kubeconfig %s: %w", path, err)
	}
	client.WrapTransport = refreshed
	return client, nil
}

// fileToken adds a token to each request. It reads the token from a file on the machine.
type fileToken struct {
	files winos.Files
	path  string
	http.RoundTripper
}

// RoundTrip sends a request with the token that is now in the file.
func (f fileToken) RoundTrip(request *http.Request) (*http.Response, error) {
	token, err := winos.ReadFile(f.files, f.path)
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return f.RoundTripper.RoundTrip(request)
}

// access is a client of the API server.
type access struct {
	client    kubernetes.Interface
	transport *http.Transport
	dialer    *connrotation.Dialer
}

// connect creates a client with its own transport, so that the client's certificate can be replaced and its connections
// can be closed. If certificate is nil, the client always uses the credentials in config.
func connect(config *rest.Config, name string, now func() time.Time, certificate func() *tls.Certificate) (*access,
	error) {
	security, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing TLS: %w", err)
	}
	if security == nil {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	security.Time = now
	if certificate != nil {
		security.Certificates = nil
		security.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := certificate(); c != nil {
				return c, nil
			}
			return &tls.Certificate{}, nil
		}
	}
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext)
	direct := utilnet.SetTransportDefaults(&http.Transport{
		DialContext:     dialer.DialContext,
		TLSClientConfig: security,
		// The machine must not use the proxy in the environment of the lab's process.
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	})
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:        config.Host,
		APIPath:     config.APIPath,
		BearerToken: config.BearerToken, WrapTransport: config.WrapTransport,
		Transport: direct,
		UserAgent: name,
		QPS:       clientQPS,
		Burst:     clientBurst,
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &access{client: client, transport: direct, dialer: dialer}, nil
}

// reconnect closes all connections, so that the next requests use the newest certificate.
func (a *access) reconnect() { a.dialer.CloseAll() }

func (a *access) close() {
	a.transport.CloseIdleConnections()
	a.dialer.CloseAll()
}
