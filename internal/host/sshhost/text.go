package sshhost

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"

	"github.com/windows-nodes/wmco/internal/host"
)

const (
	// maxWords limits a host's own text in an error, in bytes.
	maxWords = 512
	// minSecret is the shortest part of a secret that is redacted, in bytes. Words and paths are shorter or
	// have characters that secrets lack.
	minSecret = 16
)

// tail is an io.Writer that keeps the last bytes.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxWords; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

// String returns the kept bytes.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// redact returns a host's text in printable form, without parts of the request's secrets. Secrets are the
// fields of type []byte, which hold kubeconfigs and certificates. Both their encoded and their decoded form
// are redacted.
func redact(words string, request []byte) string {
	secrets := secretParts(request)
	var out strings.Builder
	for len(words) > 0 {
		n := secretRun(words)
		run := words[:max(n, 1)]
		if n >= minSecret && leaks(run, secrets) {
			out.WriteString("<removed>")
		} else {
			out.WriteString(run)
		}
		words = words[len(run):]
	}
	return host.Printable(out.String(), maxWords)
}

// secretRun returns the length of text's prefix that consists of characters of tokens, keys and base64.
func secretRun(text string) int {
	return len(text) - len(strings.TrimLeft(text,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-"))
}

// leaks reports whether any part of run with minSecret bytes is part of a secret.
func leaks(run string, secrets [][]byte) bool {
	for at := 0; at+minSecret <= len(run); at++ {
		for _, s := range secrets {
			if bytes.Contains(s, []byte(run[at:at+minSecret])) {
				return true
			}
		}
	}
	return false
}

// secretParts returns the []byte values in a request, encoded and decoded.
func secretParts(request []byte) [][]byte {
	var tree any
	if json.Unmarshal(request, &tree) != nil {
		return nil
	}
	var parts [][]byte
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			for _, child := range node {
				walk(child)
			}
		case []any:
			for _, child := range node {
				walk(child)
			}
		case string:
			if decoded, err := base64.StdEncoding.DecodeString(node); err == nil && len(node) > minSecret {
				parts = append(parts, []byte(node), decoded)
			}
		}
	}
	walk(tree)
	return parts
}
