package resolver_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Any local process can reach the resolver. A process without a token keeps no connection after its response, and
// doesn't block pulls in the meantime.
func TestA55_WhoHasNoTokenHoldsNoConnectionToTheResolver(t *testing.T) {
	t.Parallel()
	const connections = 300
	asks := []struct {
		request string
		status  int
	}{
		{"GET /v2/ HTTP/1.1\r\nHost: a\r\n\r\n", http.StatusForbidden},
		{"POST /v2/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n", http.StatusForbidden}, // the body is missing
		{"GET /v2/a/manifests/b?ns=a.test HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer pod-x\r\n\r\n",
			http.StatusUnauthorized},
		{"GET /x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer pod-x\r\n\r\n", http.StatusNotFound},
	}
	u := newUpstream(t, newImage(1, 10))
	options := calm()
	options.Request = 10 * time.Second // even a busy machine can connect and send a request in this time
	g := newRig(t, options, config(t, source+" tag "+u.host+"/m"))
	address := strings.TrimPrefix(g.url, "http://")
	type answered struct {
		net.Conn
		reader  *bufio.Reader
		request string
	}
	var all []answered
	for n := range connections {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if n%2 == 0 {
			// This client sends nothing. So the resolver closes the connection after the time limit for a request.
			continue
		}
		ask := asks[n/2%len(asks)]
		if _, err = io.WriteString(conn, ask.request); err != nil {
			t.Fatal(err)
		}
		if err = conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		answer, err := http.ReadResponse(reader, nil)
		if err != nil || answer.StatusCode != ask.status {
			t.Fatalf("%s: %+v, %v", ask.request, answer, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		all = append(all, answered{conn, reader, ask.request})
	}
	if a := g.ask(t, http.MethodGet, source, "a/manifests/latest"); a.status != http.StatusOK {
		t.Errorf("the pull returned %v", a)
	}
	for _, one := range all {
		if err := one.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := one.reader.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is still open after %s: %v", one.request, err)
		}
	}
}

// The time limit for a request must not apply to its answer.
func TestAPullMayTakeLongerThanItsRequest(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1<<20)
	u := newUpstream(t, m)
	options := calm()
	options.Request = 2 * time.Second
	u.failing(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, digestOf(m.layer)) {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(m.layer)))
		half := len(m.layer) / 2
		_, _ = w.Write(m.layer[:half])
		_ = http.NewResponseController(w).Flush()
		time.Sleep(options.Request + time.Second) // the answer takes longer than a request may take
		_, _ = w.Write(m.layer[half:])
		return true
	})
	g := newRig(t, options, config(t, source+" digest "+u.host+"/m never"))
	// A busy machine may need longer than the limit to connect and send the first request. On an open connection, the
	// time limit starts with the next request.
	eventually(t, func() bool {
		return g.ask(t, http.MethodGet, source, "a/manifests/"+digestOf(m.index)).isRight(m.index)
	})
	for range 2 { // both requests use one connection
		if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
			t.Errorf("the layer's answer is %v", a)
		}
	}
	if n := u.asked("blobs/"); n != 2 {
		t.Errorf("the registry was asked %d times", n)
	}
}
