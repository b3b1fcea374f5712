package payloadserver

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// Connections of unknown clients may use up all file descriptors of the process. The log must show this, even though it
// also contains messages about other failed connections.
func TestThatConnectionsCanNotBeAcceptedIsLoggedBesideThoseThatFail(t *testing.T) {
	t.Parallel()
	var lines []string
	to := newErrorLog(funcr.New(func(_, text string) { lines = append(lines, text) }, funcr.Options{}))
	for range 3 {
		to.Print("http: TLS handshake error from 10.0.0.66:1: EOF")
		to.Print("http: Accept error: too many open files; retrying in 5ms")
	}
	to.Print("http: panic serving 10.0.0.1:1: nil map")
	to.Print("http: panic serving 10.0.0.2:1: nil map")
	if all := strings.Join(lines, "\n"); len(lines) != 4 || strings.Count(all, "handshake") != 1 ||
		strings.Count(all, "too many open files") != 1 || strings.Count(all, "nil map") != 2 {
		t.Errorf("the log is\n%s", all)
	}
}
