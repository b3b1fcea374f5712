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

// Server is where the API server is, and what verifies it.
type Server struct {
	URL string
	// CA is a bundle in PEM.
	CA []byte
}

// parsed is a kubeconfig, with the parts that count.
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

// IsKubeconfig reports whether a program can start with a kubeconfig: it names a server and a user.
func IsKubeconfig(content []byte) bool {
	p, err := parse(content)
	return err == nil && p.hasUser
}

// ServerOf is the API server of a kubeconfig that holds its CA.
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

// readKubeconfig reads the API server of a kubeconfig, with the file that holds its CA.
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

// Kubeconfigs are those of the node's programs, the daemon aside. Each program reads its own once, when it starts.
// kubelet writes its own, with what its bootstrap credential tells, at each start without a valid kubeconfig and
// certificate (kubernetes, pkg/kubelet/certificate/bootstrap): at its first, and when somebody had it forget them.
func Kubeconfigs() []string {
	paths := []string{contract.PathKubeconfig}
	for _, t := range contract.ServiceTokens() {
		paths = append(paths, t.Kubeconfig)
	}
	return paths
}

// Astray gives those of some kubeconfigs that name another API server or CA. One that is not there or can't be used
// is nobody's way to the API server.
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

// Point has kubeconfigs name an API server and its CA; without an URL, only the CA. All else in them stays.
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

// Repointed is the API server that Point would have a kubeconfig name, or nil if nothing in it has to change.
func Repointed(files winos.Files, path string, to Server) (*Server, error) {
	content, err := pointed(files, path, to)
	if err != nil || content == nil {
		return nil, err
	}
	server, err := ServerOf(content)
	return &server, err
}

// pointed is a kubeconfig as it has to be, or nil if nothing in it has to change.
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
		return nil, nil //nolint:nilerr // a join brings another
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
