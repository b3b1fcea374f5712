// Package payloadserver implements a server where nodes in service download missing files of the payload. It sends a
// blob to a client that knows the digest of the blob. Clients are daemons of known nodes. While hosts join by
// themselves, these hosts are clients as well, called guests. They connect through the API server's service proxy,
// which checks their rights but doesn't present a certificate to this server. No blob is confidential.
//
// The operator's leader runs the server together with the controllers. The server doesn't know about hosts or versions,
// and never writes to the cluster. It stores nothing about transfers: if a transfer is interrupted, the daemon sends a
// range request for the rest of the blob.
package payloadserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/cert"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

const (
	// defaultTransfers limits the network traffic while all nodes of a fleet download a payload: ten concurrent
	// transfers fill a link with 10 Gbit/s.
	defaultTransfers = 10
	// handshakeTime is how long a client may take to send its certificate and its request.
	handshakeTime = 10 * time.Second
	// queueTimeout is how long a request waits for a slot. Then the server tells the client to try again later.
	queueTimeout = 20 * time.Second
	// stall is how long a daemon may take to receive the next piece of a response.
	stall = time.Minute
	// leastRate is the minimum rate of a transfer in bytes per second. A slower transfer would keep a slot for too
	// long, while other daemons wait for slots. At this rate, a transfer of 100 MB takes half an hour.
	leastRate = 64 << 10
	// lifetime is the lifetime of the server's certificate. The operator creates a new certificate each time it starts.
	// Upgrades make it start more often than every five years.
	lifetime = 5 * 365 * 24 * time.Hour
	// If no slot is free, a daemon should wait at least retryAfter before it tries again. The server adds a random time
	// from 0 to retryAfter.
	retryAfter = 5 * time.Second
)

// Blobs finds the blobs of a payload by their digests. *payload.Dir implements it.
type Blobs interface {
	// Blob returns false if the payload doesn't contain a blob with this digest.
	Blob(digest string) (payload.Blob, bool)
}

// Options configure a payload server. Blobs, Clients, Known and at least one name or address are required.
type Options struct {
	Blobs Blobs
	// Names and Addresses are where daemons connect to the server. They are in the server's certificate.
	Names     []string
	Addresses []net.IP
	// Clients returns the CAs that sign the certificates of daemons, or false while they are unknown. The server calls
	// it for each connection. The method VerifyOptions of a dynamiccertificates.CAContentProvider has this type.
	Clients func() (x509.VerifyOptions, bool)
	// Known reports whether a node is a node of the operator.
	Known func(ctx context.Context, node string) (bool, error)
	// Guests reports whether guests are allowed now. If it is nil, guests are never allowed.
	Guests func(ctx context.Context) (bool, error)
	// Transfers is the maximum number of transfers at the same time. Guests can use half of them. Default: 10.
	Transfers int
	// Connections is the maximum number of open connections without a request. Default: 4096.
	Connections int
	// Registry is the registry for the server's metrics. If it is nil, the metrics are not registered.
	Registry prometheus.Registerer
}

// PayloadServer is an HTTPS server that sends blobs to clients.
type PayloadServer struct {
	Options
	certificate tls.Certificate
	trusted     []byte
	turns       chan struct{}
	shares      shares
	meters      *meters
}

// New creates a payload server and its certificate, which daemons need to verify the server: see Certificate.
func New(options Options) (*PayloadServer, error) {
	if options.Blobs == nil || options.Clients == nil || options.Known == nil ||
		len(options.Names)+len(options.Addresses) == 0 {
		return nil, errors.New("creating a payload server: an option is missing")
	}
	if options.Transfers == 0 {
		options.Transfers = defaultTransfers
	}
	if options.Connections == 0 {
		options.Connections = maxConnections
	}
	trusted, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host: contract.PayloadService, AlternateIPs: options.Addresses, AlternateDNS: options.Names, MaxAge: lifetime})
	if err != nil {
		return nil, fmt.Errorf("creating the payload server's certificate: %w", err)
	}
	certificate, err := tls.X509KeyPair(trusted, key)
	if err != nil {
		return nil, fmt.Errorf("reading the payload server's certificate: %w", err)
	}
	return &PayloadServer{Options: options, certificate: certificate, trusted: trusted,
		turns: make(chan struct{}, options.Transfers), shares: shares{nodes: map[string]int{}},
		meters: newMeters(options.Registry)}, nil
}

// Certificate returns the server's certificate and its CA, as PEM. Each call of New creates new ones.
func (s *PayloadServer) Certificate() []byte { return s.trusted }

// Serve serves requests until ctx ends. It closes the listener. The server closes each connection after one request, so
// clients can't keep idle connections open.
func (s *PayloadServer) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: handshakeTime, MaxHeaderBytes: 1 << 14,
		// After this time, net/http cancels the context of a request, even while the request waits for a slot.
		ReadTimeout: handshakeTime + queueTimeout,
		// transfer extends this deadline for each piece of a response.
		WriteTimeout: stall,
		ErrorLog:     newErrorLog(logr.FromContextOrDiscard(ctx)),
		ConnContext:  connContext,
		BaseContext:  func(net.Listener) context.Context { return ctx },
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				clients, known := s.Clients()
				if !known {
					return nil, errors.New("the CAs of daemons are not known yet")
				}
				config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{s.certificate},
					ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.Roots}
				if s.Guests != nil {
					guests, err := s.Guests(ctx)
					if err != nil {
						return nil, err
					}
					if guests {
						config.ClientAuth = tls.VerifyClientCertIfGiven
					}
				}
				return config, nil
			},
		},
	}
	server.SetKeepAlivesEnabled(false)
	// When ctx ends, interrupt all transfers. Daemons request the rest later.
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.ServeTLS(newBounded(listener, s.Connections, s.meters.failed), "", "")
	if ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving blobs: %w", err)
	}
	return nil
}

// ServeHTTP sends one or more blobs, one after the other. A request is a GET of contract.PayloadServerPath with the
// digest of the first blob. The query contains the other digests: see contract.PayloadServerThen. A range request gets
// the rest of this content from an offset.
func (s *PayloadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.meters.requests.WithLabelValues(s.answer(w, r)).Inc()
}

func (s *PayloadServer) answer(w http.ResponseWriter, r *http.Request) (result string) {
	ctx := r.Context()
	if r.ContentLength == 0 { // if the request has a body, net/http still waits for the body
		spoken(ctx)
	}
	guest := s.Guests != nil && r.TLS != nil && len(r.TLS.PeerCertificates) == 0
	node, err := s.caller(ctx, r.TLS)
	digest, found := strings.CutPrefix(r.URL.Path, contract.PayloadServerPath)
	switch {
	case !found:
		http.NotFound(w, r)
		return resultRefused
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return resultRefused
	case err != nil:
		logr.FromContextOrDiscard(ctx).Error(err, "looking up a daemon")
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return resultFailed
	case node == "" && !guest:
		http.Error(w, "this is for daemons of known nodes", http.StatusForbidden)
		return resultRefused
	}
	blobs := s.blobs(digest, r.URL.Query().Get(contract.PayloadServerThen))
	if len(blobs) == 0 {
		http.NotFound(w, r)
		return resultMissing
	}
	most := perNode
	if guest { // all guests together have one limit, because any client may be a guest
		most = max(1, s.Transfers/2)
	}
	leave, ok := s.shares.take(node, most)
	if !ok {
		return busy(w)
	}
	defer leave()
	if !s.turn(ctx) {
		return busy(w)
	}
	defer func() { <-s.turns }()
	s.meters.sending.Inc()
	defer s.meters.sending.Dec()
	return s.send(w, r, blobs)
}

func busy(w http.ResponseWriter) string {
	w.Header().Set("Retry-After", strconv.Itoa(int((retryAfter + rand.N(retryAfter)).Seconds())))
	http.Error(w, "too many transfers", http.StatusServiceUnavailable)
	return resultBusy
}

// turn waits for a slot for a transfer. It returns false if no slot is free in time.
func (s *PayloadServer) turn(ctx context.Context) bool {
	s.meters.waiting.Inc()
	defer s.meters.waiting.Dec()
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	select {
	case s.turns <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// caller returns the name of the node whose daemon sent the request. If the client's certificate doesn't belong to the
// daemon of a known node, caller returns an empty string.
func (s *PayloadServer) caller(ctx context.Context, state *tls.ConnectionState) (string, error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return "", nil
	}
	subject := state.PeerCertificates[0].Subject
	node, daemon := strings.CutPrefix(subject.CommonName, contract.DaemonUserPrefix)
	if !daemon || node == "" || !slices.Equal(subject.Organization, []string{contract.DaemonGroup}) {
		return "", nil
	}
	known, err := s.Known(ctx, node)
	if err != nil || !known {
		return "", err
	}
	return node, nil
}

// blobs returns the requested blobs. If the payload doesn't contain a blob, blobs returns only the earlier blobs.
func (s *PayloadServer) blobs(digest, then string) (found []payload.Blob) {
	for {
		blob, ok := s.Blobs.Blob(digest)
		if !ok {
			return found
		}
		found = append(found, blob)
		digest, then, _ = strings.Cut(then, ",")
	}
}

func (s *PayloadServer) send(w http.ResponseWriter, r *http.Request, blobs []payload.Blob) (result string) {
	var from, size int64
	for _, b := range blobs {
		size += b.Size
	}
	status := http.StatusOK
	if part := r.Header.Get("Range"); part != "" {
		text, isRest := strings.CutSuffix(strings.TrimPrefix(part, "bytes="), "-")
		n, err := strconv.ParseInt(text, 10, 64)
		if !isRest || err != nil || n < 0 || n >= size {
			http.Error(w, "only bytes=N- within the content", http.StatusRequestedRangeNotSatisfiable)
			return resultRefused
		}
		from, status = n, http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, size-1, size))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size-from, 10))
	w.WriteHeader(status)
	out := &transfer{ResponseWriter: w, control: http.NewResponseController(w), began: time.Now(),
		bytes: s.meters.bytes}
	for _, b := range blobs {
		if err := copyFrom(out, b, from); out.failed {
			return resultCut
		} else if err != nil { // the response is then too short, so the daemon tries again
			logr.FromContextOrDiscard(r.Context()).Error(err, "reading a blob", "digest", b.Digest)
			return resultFailed
		}
		from = max(0, from-b.Size)
	}
	return resultSent
}

// copyFrom copies a blob from an offset to its end. If the offset is after the end, copyFrom copies nothing.
func copyFrom(out io.Writer, b payload.Blob, offset int64) error {
	if offset >= b.Size {
		return nil
	}
	content, err := b.Open()
	if err != nil {
		return err
	}
	if _, err = io.CopyN(io.Discard, content, offset); err == nil {
		_, err = io.CopyN(out, content, b.Size-offset)
	}
	return errors.Join(err, content.Close())
}

// transfer writes a response. It limits the time for each piece. It also ends a response that is slower than the
// minimum rate (leastRate). So a response over a slow link can succeed, and a response over a broken link ends.
type transfer struct {
	http.ResponseWriter
	control *http.ResponseController
	began   time.Time
	written int64
	bytes   prometheus.Counter
	failed  bool
}

func (t *transfer) Write(piece []byte) (n int, err error) {
	err = t.control.SetWriteDeadline(writeDeadline(t.began, time.Now(), t.written))
	if err == nil {
		n, err = t.ResponseWriter.Write(piece)
	}
	t.written += int64(n)
	t.bytes.Add(float64(n))
	t.failed = t.failed || err != nil
	return n, err
}

// writeDeadline returns the time until which the daemon must have received the next piece. It is at most `stall` from
// now. It is earlier if the transfer would otherwise become slower than leastRate.
func writeDeadline(began, now time.Time, written int64) time.Time {
	rate := began.Add(stall + time.Duration(written)*time.Second/leastRate)
	if next := now.Add(stall); next.Before(rate) {
		return next
	}
	return rate
}
