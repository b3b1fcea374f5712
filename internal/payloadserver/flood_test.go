package payloadserver_test

import (
	"bytes"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Whoever reaches the port can connect and say what is no TLS. The log of a container is small: what
// matters in it must not be rotated away by that. It sets where Go's own log goes, so it runs alone.
func TestA55_WhoShowsNoCertificateFillsNoLog(t *testing.T) { //nolint:paralleltest // see above
	const connections = 1000
	written := &lines{}
	log.SetOutput(written)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	p := startLogged(t, funcr.New(func(_, text string) { _, _ = written.Write([]byte(text + "\n")) }, funcr.Options{}),
		payloadserver.Options{Blobs: &shelf{}, Clients: newAuthority(t).pool, Known: only("win-1")})
	for range connections {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = conn.Write([]byte("this is no TLS at all\n")); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the server closes
		_ = conn.Close()
	}
	if text := written.String(); strings.Count(text, "\n") > 3 || !strings.Contains(text, "TLS handshake") {
		t.Errorf("%d lines were logged, the last of them %q", strings.Count(text, "\n"), text[max(0, len(text)-200):])
	}
}
