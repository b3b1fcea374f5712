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

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// pair is a certificate and its key in one file on the machine.
type pair struct {
	files winos.Files
	path  string
	// replaced is called after each update.
	replaced func()

	mu      sync.Mutex
	current *tls.Certificate
}

// get returns the certificate, or nil. It reads the file if the certificate isn't cached.
func (p *pair) get() *tls.Certificate {
	current, _ := p.load()
	return current
}

// load works like get, and also returns the error if the file exists but is invalid.
func (p *pair) load() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		return p.current, nil
	}
	content, err := winos.ReadFile(p.files, p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		p.current, err = parsePair(content, content)
	}
	return p.current, err
}

// update writes the certificate and the key.
func (p *pair) update(chain, key []byte) error {
	next, err := parsePair(chain, key)
	if err != nil {
		return err
	}
	if err := winos.WriteFile(p.files, p.path, bytes.NewReader(slices.Concat(chain, key)),
		winos.AccessAdministrators); err != nil {
		return fmt.Errorf("storing a certificate: %w", err)
	}
	p.mu.Lock()
	p.current = next
	p.mu.Unlock()
	p.replaced()
	return nil
}

// followed is the certificate and key that a kubeconfig refers to. Another program replaces them from time to time.
type followed struct {
	files      winos.Files
	kubeconfig string
}

// get reads the certificate and key on every call, because new connections are rare. On errors, it returns nil.
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
