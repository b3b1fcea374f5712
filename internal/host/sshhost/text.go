package sshhost

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"sync"

	"github.com/windows-nodes/wmco/internal/host"
)

const (
	maxWords = 512
	// minSecret is the shortest part of a secret that is redacted, in bytes. Ordinary words and paths are shorter, or
	// contain characters that no secret contains.
	minSecret = 16
)

// tail is an io.Writer that keeps only the last maxWords bytes.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxWords; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// secretLike matches text that may be a part of a secret: at least 16 characters that occur in tokens, keys and base64.
var secretLike = regexp.MustCompile(`[A-Za-z0-9+/=_-]{16,}`)

// redact returns a host's text in printable form, without parts of the request's secrets. The secrets are the fields of
// type []byte, which contain kubeconfigs and certificates. redact removes both their encoded and their decoded form.
func redact(words string, request []byte) string {
	var secrets [][]byte
	for _, encoded := range secretLike.FindAll(request, -1) {
		if decoded, err := base64.StdEncoding.DecodeString(string(encoded)); err == nil {
			secrets = append(secrets, encoded, decoded)
		}
	}
	return host.Printable(secretLike.ReplaceAllStringFunc(words, func(run string) string {
		if leaks(run, secrets) {
			return "<removed>"
		}
		return run
	}), maxWords)
}

// `leaks` reports whether the text `run` and one of the secrets have minSecret consecutive bytes in common.
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
