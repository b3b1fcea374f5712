package program

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"k8s.io/client-go/util/certificate"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// pair is a certificate and its key in one file of the machine. It is a certificate.Store.
type pair struct {
	files winos.Files
	path  string
	// replaced is called after each update.
	replaced func()

	mu      sync.Mutex
	current *tls.Certificate
}

// Current reads the file when nothing is known yet.
func (p *pair) Current() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		return p.current, nil
	}
	content, err := winos.ReadFile(p.files, p.path)
	if errors.Is(err, fs.ErrNotExist) {
		missing := certificate.NoCertKeyError("no certificate and key at " + p.path)
		return nil, &missing
	}
	if err != nil {
		return nil, err
	}
	p.current, err = parsePair(content, content)
	return p.current, err
}

// get gives the certificate for TLS, or nil.
func (p *pair) get() *tls.Certificate {
	current, err := p.Current()
	if err != nil {
		return nil
	}
	return current
}

// Update writes certificate and key.
func (p *pair) Update(chain, key []byte) (*tls.Certificate, error) {
	next, err := parsePair(chain, key)
	if err != nil {
		return nil, err
	}
	if err := winos.WriteFile(p.files, p.path, bytes.NewReader(slices.Concat(chain, key)), winos.AccessAdministrators); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.current = next
	p.mu.Unlock()
	p.replaced()
	return next, nil
}

// followed is the certificate and key that a kubeconfig names, which another program replaces now and then.
type followed struct {
	files      winos.Files
	kubeconfig string
}

// get reads them anew, or gives nil. New connections are rare.
func (f followed) get() *tls.Certificate {
	config, err := loadKubeconfig(f.files, f.kubeconfig)
	if err != nil {
		return nil
	}
	current, err := parsePair(config.CertData, config.KeyData)
	if err != nil {
		return nil
	}
	return current
}

func parsePair(chain, key []byte) (*tls.Certificate, error) {
	parsed, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate and its key: %w", err)
	}
	if parsed.Leaf == nil {
		if parsed.Leaf, err = x509.ParseCertificate(parsed.Certificate[0]); err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
	}
	return &parsed, nil
}

var _ certificate.Store = (*pair)(nil)
