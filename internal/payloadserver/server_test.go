package payloadserver_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// shelf contains one blob. If gate is set, readers of the blob wait for gate.
type shelf struct {
	content []byte
	gate    chan struct{}
	// opened gets a signal each time the blob is opened.
	opened chan struct{}
	// open is the number of readers of the blob. peak is the maximum number of readers at the same time.
	open, peak atomic.Int32
}

func (s *shelf) digest() string {
	sum := sha256.Sum256(s.content)
	return hex.EncodeToString(sum[:])
}

func (s *shelf) Blob(digest string) (payload.Blob, bool) {
	if digest != s.digest() {
		return payload.Blob{}, false
	}
	return payload.Blob{Blob: contract.Blob{Digest: digest, Size: int64(len(s.content))},
		Open: func() (io.ReadCloser, error) {
			open := s.open.Add(1)
			for peak := s.peak.Load(); open > peak && !s.peak.CompareAndSwap(peak, open); peak = s.peak.Load() {
			}
			if s.opened != nil {
				s.opened <- struct{}{}
			}
			return &gated{Reader: bytes.NewReader(s.content), shelf: s}, nil
		}}, true
}

type gated struct {
	*bytes.Reader
	shelf *shelf
}

func (g *gated) Read(p []byte) (int, error) {
	if g.shelf.gate != nil {
		<-g.shelf.gate
	}
	return g.Reader.Read(p)
}

func (g *gated) Close() error {
	g.shelf.open.Add(-1)
	return nil
}

// signingCA is a CA that signs certificates of daemons.
type signingCA struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newCA(t *testing.T) *signingCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	return &signingCA{key: key, certificate: sign(t, template, template, key, key)}
}

func sign(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func (a *signingCA) pool() (x509.VerifyOptions, bool) {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return x509.VerifyOptions{Roots: pool}, true
}

func (a *signingCA) issue(t *testing.T, name string, groups ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	return tls.Certificate{Certificate: [][]byte{sign(t, template, a.certificate, key, a.key).Raw}, PrivateKey: key}
}

// place is a running payload server.
type place struct {
	url   string
	trust *x509.CertPool
}

func start(t *testing.T, options payloadserver.Options) *place {
	t.Helper()
	return startLogged(t, logr.Discard(), options)
}

func startLogged(t *testing.T, log logr.Logger, options payloadserver.Options) *place {
	t.Helper()
	options.Addresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	d, err := payloadserver.New(options)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(logr.NewContext(t.Context(), log))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := d.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); serving.Wait() })
	p := &place{url: "https://" + listener.Addr().String(), trust: x509.NewCertPool()}
	if !p.trust.AppendCertsFromPEM(d.Certificate()) {
		t.Fatal("the payload server's certificate can't be read")
	}
	return p
}

// get requests path with a certificate. offset is the rest to request, such as 499990-. If it is empty, get requests
// the whole content.
func (p *place) get(t *testing.T, as *tls.Certificate, path string, offset string) (status int, body []byte,
	err error) {
	t.Helper()
	config := &tls.Config{RootCAs: p.trust, MinVersion: tls.VersionTLS13}
	if as != nil {
		config.Certificates = []tls.Certificate{*as}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if offset != "" {
		request.Header.Set("Range", "bytes="+offset)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
	}()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

func only(node string) func(context.Context, string) (bool, error) {
	return func(_ context.Context, asked string) (bool, error) { return asked == node, nil }
}

func TestADaemonGetsABlobAndTheRestOfOne(t *testing.T) {
	t.Parallel()
	signer, goods := newCA(t), &shelf{content: bytes.Repeat([]byte("blob "), 100_000)}
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1")})
	daemon := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	status, body, err := p.get(t, &daemon, contract.PayloadServerPath+goods.digest(), "")
	if err != nil || status != http.StatusOK || !bytes.Equal(body, goods.content) {
		t.Errorf("the whole blob: %d, %d bytes, %v", status, len(body), err)
	}
	status, body, err = p.get(t, &daemon, contract.PayloadServerPath+goods.digest(), "499990-")
	if err != nil || status != http.StatusPartialContent || string(body) != "blob blob " {
		t.Errorf("the rest of the blob: %d, %q, %v", status, body, err)
	}
	for _, path := range []string{"/", contract.PayloadServerPath, contract.PayloadServerPath + "../payload.json",
		contract.PayloadServerPath + hex.EncodeToString(make([]byte, 32))} {
		if status, _, err = p.get(t, &daemon, path, ""); err != nil || status != http.StatusNotFound {
			t.Errorf("%s: %d, %v", path, status, err)
		}
	}
}

// several contains several blobs. The keys are the digests of the blobs.
type several map[string]*shelf

func (s several) Blob(digest string) (payload.Blob, bool) {
	if one, ok := s[digest]; ok {
		return one.Blob(digest)
	}
	return payload.Blob{}, false
}

func TestADaemonGetsSeveralBlobsWithOneRequest(t *testing.T) {
	t.Parallel()
	signer, goods, digests := newCA(t), several{}, []string{}
	for _, text := range []string{"one", "two", "three"} {
		blob := &shelf{content: []byte(text)}
		digests = append(digests, blob.digest())
		goods[blob.digest()] = blob
	}
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1")})
	daemon := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	for name, c := range map[string]struct {
		then, part, want string
		status           int
	}{
		"all":                        {digests[1] + "," + digests[2], "", "onetwothree", http.StatusOK},
		"the rest":                   {digests[1] + "," + digests[2], "4-", "wothree", http.StatusPartialContent},
		"the rest from the last one": {digests[1] + "," + digests[2], "8-", "ree", http.StatusPartialContent},
		"up to one that is missing":  {digests[1] + ",x," + digests[2], "", "onetwo", http.StatusOK},
	} {
		status, body, err := p.get(t, &daemon, contract.PayloadServerPath+digests[0]+"?"+contract.PayloadServerThen+"="+
			c.then, c.part)
		if err != nil || status != c.status || string(body) != c.want {
			t.Errorf("%s: %d %q %v", name, status, body, err)
		}
	}
	for _, blob := range goods {
		if n := blob.open.Load(); n != 0 {
			t.Errorf("%s has %d open readers", blob.content, n)
		}
	}
}

func TestOnlyDaemonsOfKnownNodesGetAnything(t *testing.T) {
	t.Parallel()
	signer, stranger, goods := newCA(t), newCA(t), &shelf{content: []byte("x")}
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1")})
	for name, certificate := range map[string]tls.Certificate{
		"the daemon of a node that is not ours": signer.issue(t, contract.DaemonUserPrefix+"win-2",
			contract.DaemonGroup),
		"a daemon without a node":           signer.issue(t, contract.DaemonUserPrefix, contract.DaemonGroup),
		"a kubelet":                         signer.issue(t, contract.KubeletUserPrefix+"win-1", contract.KubeletGroup),
		"a daemon's name without its group": signer.issue(t, contract.DaemonUserPrefix+"win-1"),
		"a daemon with one group more": signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup,
			"system:masters"),
	} {
		if status, _, err := p.get(t, &certificate, contract.PayloadServerPath+goods.digest(), ""); err != nil ||
			status != http.StatusForbidden {
			t.Errorf("%s: %d, %v", name, status, err)
		}
	}
	if _, _, err := p.get(t, nil, contract.PayloadServerPath+goods.digest(), ""); err == nil {
		t.Error("a client without a certificate has access")
	}
	forged := stranger.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	if _, _, err := p.get(t, &forged, contract.PayloadServerPath+goods.digest(), ""); err == nil {
		t.Error("a client with a certificate of another CA has access")
	}
}

func TestNobodyIsLetInWhileTheCAsAreUnknown(t *testing.T) {
	t.Parallel()
	signer, goods := newCA(t), &shelf{content: []byte("x")}
	p := start(t, payloadserver.Options{Blobs: goods, Known: only("win-1"),
		Clients: func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }})
	daemon := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	if status, _, err := p.get(t, &daemon, contract.PayloadServerPath+goods.digest(), ""); err == nil {
		t.Errorf("a daemon gets status %d", status)
	}
}

func TestATroubleOfOursIsNoRefusal(t *testing.T) {
	t.Parallel()
	signer, goods := newCA(t), &shelf{content: []byte("x")}
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool,
		Known: func(context.Context, string) (bool, error) { return false, errors.New("away") }})
	daemon := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	if status, _, err := p.get(t, &daemon, contract.PayloadServerPath+goods.digest(), ""); err != nil ||
		status != http.StatusServiceUnavailable {
		t.Errorf("got %d, %v", status, err)
	}
}

// receive returns a value from a channel. The test fails if there is none within a minute.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	var one T
	select {
	case one = <-from:
	case <-time.After(time.Minute):
		t.Fatal("no value arrived")
	}
	return one
}

func TestNoMoreBlobsAreSentAtOnceThanAllowed(t *testing.T) {
	t.Parallel()
	signer, goods := newCA(t), &shelf{content: []byte("x"), gate: make(chan struct{}),
		opened: make(chan struct{}, 5)}
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Transfers: 2,
		Known: func(context.Context, string) (bool, error) { return true, nil }})
	statuses := make(chan int, 5)
	for n := range cap(statuses) {
		daemon := signer.issue(t, fmt.Sprintf("%swin-%d", contract.DaemonUserPrefix, n), contract.DaemonGroup)
		go func() {
			status, _, err := p.get(t, &daemon, contract.PayloadServerPath+goods.digest(), "")
			if err != nil {
				t.Error(err)
			}
			statuses <- status
		}()
	}
	release := sync.OnceFunc(func() { close(goods.gate) })
	defer release()
	receive(t, goods.opened)
	receive(t, goods.opened)
	for range cap(statuses) { // one for each transfer
		select {
		case goods.gate <- struct{}{}:
		case <-time.After(time.Minute):
			t.Fatal("no reader started")
		}
	}
	release()
	for range cap(statuses) {
		if status := receive(t, statuses); status != http.StatusOK {
			t.Errorf("got %d", status)
		}
	}
	if peak := goods.peak.Load(); peak != 2 {
		t.Errorf("%d blobs were sent at the same time", peak)
	}
}

func TestWhatIsHandedOutIsCounted(t *testing.T) {
	t.Parallel()
	signer, goods, registry := newCA(t), &shelf{content: make([]byte, 1000)}, prometheus.NewRegistry()
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1"), Registry: registry})
	ours := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	foreign := signer.issue(t, contract.DaemonUserPrefix+"win-2", contract.DaemonGroup)
	for _, ask := range []struct {
		as           *tls.Certificate
		path, offset string
	}{{&ours, goods.digest(), ""}, {&ours, goods.digest(), "400-"}, {&ours, "aa", ""}, {&foreign, goods.digest(), ""}} {
		if _, _, err := p.get(t, ask.as, contract.PayloadServerPath+ask.path, ask.offset); err != nil {
			t.Fatal(err)
		}
	}
	got := gather(t, registry)
	want := map[string]float64{
		"wmco_payload_requests_total missing": 1, "wmco_payload_requests_total refused": 1,
		"wmco_payload_requests_total sent": 2,
		"wmco_payload_sent_bytes_total":    1600, "wmco_payload_transfers": 0, "wmco_payload_waiting": 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// gather returns the values of the metrics. The keys are the names of the metrics with the values of their labels.
func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return got
}
