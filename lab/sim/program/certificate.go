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

// pair is a file on the machine that contains a certificate and its key.
type pair struct {
	files winos.Files
	path  string
	// replaced is called each time the certificate has been replaced.
	replaced func()

	mu      sync.Mutex
	current *tls.Certificate
}

// get returns the certificate. It returns nil if there is none. It reads the file only once.
func (p *pair) get() *tls.Certificate {
	current, _ := p.load()
	return current
}

// load returns the certificate. It returns nil if the file doesn't exist. If the file is invalid, it returns an error.
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

// update replaces the certificate and the key.
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

// followed is a certificate and a key that a kubeconfig refers to. A different program replaces these files from time
// to time.
type followed struct {
	files      winos.Files
	kubeconfig string
}

// get reads the certificate and the key. It reads them each time, because new connections are rare. After an error, it
// returns nil.
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
