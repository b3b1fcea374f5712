package verbs

import (
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
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// What the host finds at the address that its kubelet will use.
func TestA08_PreflightTellsThatTheAPIServerCanNotBeReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // nothing is ever accepted
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err = closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		request contract.PreflightRequest
		clock   time.Time
		wants   string
	}{
		"it answers":             {contract.PreflightRequest{APIServer: server.URL, CA: ca}, time.Now(), ""},
		"nobody asks":            {contract.PreflightRequest{}, time.Now(), ""},
		"nothing listens":        {contract.PreflightRequest{APIServer: "https://" + closed.Addr().String(), CA: ca}, time.Now(), "refused"},
		"something is silent":    {contract.PreflightRequest{APIServer: "https://" + silent.Addr().String(), CA: ca}, time.Now(), "deadline"},
		"the name has no server": {contract.PreflightRequest{APIServer: "https://api.invalid:6443", CA: ca}, time.Now(), "lookup api.invalid"},
		"another authority": {contract.PreflightRequest{APIServer: server.URL, CA: another(t)}, time.Now(),
			"unknown authority"},
		"a clock of years ago": {contract.PreflightRequest{APIServer: server.URL, CA: ca}, time.Unix(-1, 0), "not yet valid"},
		"no authority":         {contract.PreflightRequest{APIServer: server.URL}, time.Now(), "sent no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			found, request := fit()
			found.unreachable = reach(ctx, test.request, func() time.Time { return test.clock })
			request.APIServer = test.request.APIServer
			problems := judge(found, request)
			switch {
			case test.wants == "" && len(problems) > 0:
				t.Errorf("got %v", problems)
			case test.wants == "":
			case len(problems) != 1 || problems[0].Reason != contract.ReasonAPIServerUnreachable,
				!strings.Contains(problems[0].Detail, test.wants):
				t.Errorf("got %v, want %q", problems, test.wants)
			}
		})
	}
}

// another is the certificate of an authority that is not the API server's.
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
