package sshhost

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// maxWords bounds in bytes what a host's own words take in an error.
	maxWords = 512
	// minSecret is the shortest run of characters, in bytes, that is taken for a secret when it is
	// part of one. Words and paths are shorter or have characters that secrets lack.
	minSecret = 16
)

// tail is an io.Writer that keeps the last bytes.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write is io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxWords; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

// String gives what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// printable makes a host's words fit for an error of one line: no control characters, no invalid
// UTF-8, not long.
func printable(text string, limit int) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"),
		func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 }), " ")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// redact makes a host's words printable and takes out of them what stands in the secret parts of
// the request: those of type []byte, which hold kubeconfigs and certificates, as they travel and as
// they are.
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
	return printable(out.String(), maxWords)
}

// secretRun is the length of the run of characters of tokens, keys and base64 that text begins
// with.
func secretRun(text string) int {
	return len(text) - len(strings.TrimLeft(text,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-"))
}

// leaks says whether any piece of run of minSecret bytes stands in a secret.
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

// secretParts finds the values of type []byte in a request, encoded and decoded.
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
