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

// parsed is a kubeconfig with its relevant parts.
type parsed struct {
	*clientcmdapi.Config
	cluster *clientcmdapi.Cluster
	hasUser bool
}

func parse(content []byte) (parsed, error) {
	config, err := clientcmd.Load(content)
	if err != nil {
		return parsed{}, err
	}
	current, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return parsed{}, errors.New("it has no current context")
	}
	cluster, ok := config.Clusters[current.Cluster]
	if !ok || cluster.Server == "" {
		return parsed{}, errors.New("it names no server")
	}
	_, hasUser := config.AuthInfos[current.AuthInfo]
	return parsed{config, cluster, hasUser}, nil
}

// IsKubeconfig reports whether a program can start with a kubeconfig: the kubeconfig names a server and a user.
func IsKubeconfig(content []byte) bool {
	p, err := parse(content)
	return err == nil && p.hasUser
}

// ServerOf returns the API server of a kubeconfig that contains its CA.
func ServerOf(content []byte) (Server, error) {
	p, err := parse(content)
	if err == nil && len(p.cluster.CertificateAuthorityData) == 0 {
		err = errors.New("it holds no CA of the server")
	}
	if err != nil {
		return Server{}, err
	}
	return Server{URL: p.cluster.Server, CA: p.cluster.CertificateAuthorityData}, nil
}

// readKubeconfig returns the API server of a kubeconfig. The CA may be in a separate file.
func readKubeconfig(files winos.Files, path string) (Server, error) {
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return Server{}, fmt.Errorf("reading the daemon's kubeconfig: %w", err)
	}
	p, err := parse(content)
	if err != nil {
		return Server{}, fmt.Errorf("parsing kubeconfig %s: %w", path, err)
	}
	ca := p.cluster.CertificateAuthorityData
	if len(ca) == 0 && p.cluster.CertificateAuthority != "" {
		if ca, err = winos.ReadFile(files, p.cluster.CertificateAuthority); err != nil {
			return Server{}, fmt.Errorf("reading the CA of kubeconfig %s: %w", path, err)
		}
	}
	return Server{p.cluster.Server, ca}, nil
}

// Kubeconfigs returns the kubeconfigs of the node's programs, except the daemon's. Each program reads its kubeconfig
// once, when it starts. kubelet writes its kubeconfig, from its bootstrap kubeconfig, at each start without a valid
// kubeconfig and certificate (kubernetes, pkg/kubelet/certificate/bootstrap): at its first start, and after the daemon
// has removed them.
func Kubeconfigs() []string {
	paths := []string{contract.PathKubeconfig}
	for _, t := range contract.ServiceTokens() {
		paths = append(paths, t.Kubeconfig)
	}
	return paths
}

// Astray returns the kubeconfigs that name another API server or CA. It ignores kubeconfigs that are missing or
// unusable.
func Astray(files winos.Files, paths []string, to Server) (astray []string, err error) {
	for _, path := range paths {
		content, err := pointed(files, path, to)
		if err != nil {
			return nil, err
		}
		if content != nil {
			astray = append(astray, path)
		}
	}
	return astray, nil
}

// Point writes the API server and its CA to kubeconfigs. Without a URL, it writes only the CA. The remaining content
// stays.
func Point(files winos.Files, paths []string, to Server) error {
	for _, path := range paths {
		content, err := pointed(files, path, to)
		if err == nil && content != nil {
			err = winos.WriteFile(files, path, bytes.NewReader(content), winos.AccessAdministrators)
		}
		if err != nil {
			return fmt.Errorf("having %s name the API server: %w", path, err)
		}
	}
	return nil
}

// Repointed returns the API server that Point would write to a kubeconfig, or nil if nothing has to change.
func Repointed(files winos.Files, path string, to Server) (*Server, error) {
	content, err := pointed(files, path, to)
	if err != nil || content == nil {
		return nil, err
	}
	server, err := ServerOf(content)
	return &server, err
}

// pointed returns the content that a kubeconfig needs, or nil if nothing has to change.
func pointed(files winos.Files, path string, to Server) ([]byte, error) {
	content, err := winos.ReadFile(files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	p, err := parse(content)
	if err != nil {
		return nil, nil //nolint:nilerr // a join writes another one
	}
	same := to.URL == "" || p.cluster.Server == to.URL
	if same && p.cluster.CertificateAuthority == "" && bytes.Equal(p.cluster.CertificateAuthorityData, to.CA) {
		return nil, nil
	}
	if !same {
		p.cluster.Server = to.URL
	}
	p.cluster.CertificateAuthority, p.cluster.CertificateAuthorityData = "", to.CA
	content, err = clientcmd.Write(*p.Config)
	if err != nil {
		return nil, fmt.Errorf("encoding kubeconfig %s: %w", path, err)
	}
	return content, nil
}
