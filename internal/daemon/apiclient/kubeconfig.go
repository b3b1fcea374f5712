package apiclient

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Server is the address of the API server and the CA that verifies it.
type Server struct {
	URL string
	// CA is a bundle in PEM.
	CA []byte
}

// parse parses a kubeconfig. It also returns the cluster of the current context, which always has a server.
func parse(content []byte) (*clientcmdapi.Config, *clientcmdapi.Cluster, error) {
	config, err := clientcmd.Load(content)
	if err != nil {
		return nil, nil, err
	}
	current, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return nil, nil, errors.New("it has no current context")
	}
	cluster, ok := config.Clusters[current.Cluster]
	if !ok || cluster.Server == "" {
		return nil, nil, errors.New("it names no server")
	}
	return config, cluster, nil
}

// IsKubeconfig reports whether content is a kubeconfig with a server and a user, so that programs can use it.
func IsKubeconfig(content []byte) bool {
	config, _, err := parse(content)
	return err == nil && config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] != nil
}

// ServerOf returns the API server of a kubeconfig. If the kubeconfig doesn't contain the CA, it returns an error.
func ServerOf(content []byte) (Server, error) {
	_, cluster, err := parse(content)
	if err == nil && len(cluster.CertificateAuthorityData) == 0 {
		err = errors.New("it holds no CA of the server")
	}
	if err != nil {
		return Server{}, err
	}
	return Server{URL: cluster.Server, CA: cluster.CertificateAuthorityData}, nil
}

// Kubeconfig returns a kubeconfig with one cluster, one user and one context. All three get the name `name`.
func Kubeconfig(name, namespace string, server Server, user clientcmdapi.AuthInfo) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: server.CA}
	config.AuthInfos[name] = &user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig of %s: %w", name, err)
	}
	return content, nil
}

// readKubeconfig returns the API server in a kubeconfig on the host. The file must contain the CA.
func readKubeconfig(files winos.Files, path string) (server Server, err error) {
	content, err := winos.ReadFile(files, path)
	if err == nil {
		server, err = ServerOf(content)
	}
	if err != nil {
		return server, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	return server, nil
}

// Kubeconfigs returns the paths of the kubeconfigs of the node's programs, except the daemon's kubeconfig. Each program
// reads its kubeconfig once, when it starts. If kubelet starts without a valid kubeconfig and certificate, it creates
// its kubeconfig from its bootstrap kubeconfig (kubernetes, pkg/kubelet/certificate/bootstrap).
func Kubeconfigs() []string {
	paths := []string{contract.PathKubeconfig}
	for _, t := range contract.ServiceTokens() {
		paths = append(paths, t.Kubeconfig)
	}
	return paths
}

// Point writes the URL and the CA of an API server to a kubeconfig. If the URL is empty, Point writes only the CA. All
// other content of the file stays. If the kubeconfig is missing or unusable, Point does nothing and returns no error.
func Point(files winos.Files, path string, to Server) error {
	content, err := pointed(files, path, to)
	if err == nil && content != nil {
		err = winos.WriteFile(files, path, bytes.NewReader(content), winos.AccessAdministrators)
	}
	if err != nil {
		return fmt.Errorf("writing the API server to %s: %w", path, err)
	}
	return nil
}

// Repointed returns the API server that Point would write to the kubeconfig, or nil if Point would change nothing.
func Repointed(files winos.Files, path string, to Server) (*Server, error) {
	content, err := pointed(files, path, to)
	if err != nil || content == nil {
		return nil, err
	}
	server, err := ServerOf(content)
	return &server, err
}

// `pointed` returns the content that Point would write to the kubeconfig, or nil if Point would change nothing.
func pointed(files winos.Files, path string, to Server) ([]byte, error) {
	content, err := winos.ReadFile(files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	config, cluster, err := parse(content)
	if err != nil {
		return nil, nil //nolint:nilerr // if the file is unusable, the next join replaces it
	}
	same := to.URL == "" || cluster.Server == to.URL
	if same && cluster.CertificateAuthority == "" && bytes.Equal(cluster.CertificateAuthorityData, to.CA) {
		return nil, nil
	}
	if !same {
		cluster.Server = to.URL
	}
	cluster.CertificateAuthority, cluster.CertificateAuthorityData = "", to.CA
	content, err = clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding kubeconfig %s: %w", path, err)
	}
	return content, nil
}
