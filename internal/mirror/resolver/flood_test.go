package resolver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Any local process reaches the resolver. One that shows no token holds no connection once it was
// answered, and keeps nobody from pulling meanwhile.
func TestA55_WhoHasNoTokenHoldsNoConnectionToTheResolver(t *testing.T) {
	t.Parallel()
	const connections = 300
	u := newUpstream(t, newImage(1, 10))
	g := newRig(t, calm(), config(t, source+" tag "+u.host+"/m"))
	address := strings.TrimPrefix(g.url, "http://")
	for n := range connections {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if n%2 == 0 {
			continue // says nothing, which ends after ten seconds
		}
		if _, err = fmt.Fprintf(conn, "GET /v2/ HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err = conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		answer, err := http.ReadResponse(reader, nil)
		if err != nil || answer.StatusCode != http.StatusForbidden {
			t.Fatalf("%+v, %v", answer, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if _, err = reader.ReadByte(); !errors.Is(err, io.EOF) {
			t.Fatalf("the connection stays: %v", err)
		}
	}
	if a := g.ask(t, http.MethodGet, source, "a/manifests/latest"); a.status != http.StatusOK {
		t.Errorf("a pull came to %v", a)
	}
}
