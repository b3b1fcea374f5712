package sshhost

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzWords simulates a host that prints any text. The error must contain one short line of this text, and no part of
// the request's credential that the host printed in one piece.
func FuzzWords(f *testing.F) {
	const secret = "eyJhbGciOiJSUzI1NiIsImtpZCI6InRlc3QifQ"
	request, err := json.Marshal(map[string]any{"bootstrapKubeconfig": []byte(secret)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("The system cannot find the path specified.\r\n"), []byte{})
	f.Add([]byte("\x1b[2J\x00\xff"+strings.Repeat("x", 4*maxWords)), []byte("\xe2\x80\xa8"))
	f.Add([]byte("token "+secret), []byte(" "+secret))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var kept tail
		for _, part := range [][]byte{first, second} {
			if n, err := kept.Write(part); n != len(part) || err != nil {
				t.Fatalf("%d of %d bytes, %v", n, len(part), err)
			}
		}
		words := redact(kept.String(), request)
		if len(words) > maxWords+len("…") || !utf8.ValidString(words) ||
			strings.ContainsFunc(words, unicode.IsControl) {
			t.Errorf("%d bytes: %.80q", len(words), words)
		}
		if strings.Contains(words, secret[:minSecret]) {
			t.Errorf("the credential is in %q", words)
		}
	})
}
