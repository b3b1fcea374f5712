package verbs

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/lab/port"
)

// Preflight tests the server at the address that kubelet would use.
func TestA08_PreflightTellsThatTheAPIServerCanNotBeReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	// This server never accepts a connection.
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	closed, err := port.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closed.Release)
	at := func(url string, ca []byte) contract.PreflightRequest {
		return contract.PreflightRequest{APIServer: url, CA: ca}
	}
	for name, test := range map[string]struct {
		request contract.PreflightRequest
		clock   time.Time     // zero means now
		limit   time.Duration // the timeout for a silent server; 0 means the default
		wants   string        // a regular expression
	}{
		"it answers":      {request: at(server.URL, ca)},
		"nothing listens": {request: at("https://"+closed.Address(), ca), wants: "refused"},
		"something is silent": {request: at("https://"+silent.Addr().String(), ca), limit: 3 * time.Second,
			wants: "deadline|i/o timeout"},
		"the name has no server": {request: at("https://api.invalid:6443", ca), limit: 3 * time.Second,
			wants: "lookup api.invalid"},
		"another CA":           {request: at(server.URL, another(t)), wants: "unknown authority"},
		"a clock of years ago": {request: at(server.URL, ca), clock: time.Unix(-1, 0), wants: "not yet valid"},
		"no CA":                {request: at(server.URL, nil), wants: "no certificate of the API server's CA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(test.limit, time.Minute))
			defer cancel()
			found, request := fit()
			found.unreachable = apiclient.Reach(ctx,
				apiclient.Server{URL: test.request.APIServer, CA: test.request.CA},
				func() time.Time { return cmp.Or(test.clock, time.Now()) })
			request.APIServer = test.request.APIServer
			problems := judge(found, request)
			switch {
			case test.wants == "" && len(problems) > 0:
				t.Errorf("got %v", problems)
			case test.wants == "":
			case len(problems) != 1 || problems[0].Reason != contract.ReasonAPIServerUnreachable,
				!regexp.MustCompile(test.wants).MatchString(problems[0].Detail):
				t.Errorf("got %v, want %q", problems, test.wants)
			}
		})
	}
}

// another returns the certificate of a CA that isn't the API server's CA.
func another(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another"}, IsCA: true,
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
