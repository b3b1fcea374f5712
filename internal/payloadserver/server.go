// Package payloadserver serves missing files of the payload to nodes in service: it sends blobs by their
// digest, to daemons of known nodes. While hosts join by themselves, it also sends blobs to guests. Guests are such
// hosts: they connect through the API server's proxy, which checks their rights and doesn't present a certificate to
// this server. No blob is confidential.
//
// The operator runs it together with its controllers; daemons pull from it. It knows no host and no version, and
// never writes. It keeps no state of a transfer: if a transfer was interrupted, the daemon requests the rest of the
// blob with a range request.
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

// Limits of the payload server.
const (
	// defaultTransfers bounds the network traffic while a whole fleet stages: ten streams fill a 10 Gbit/s link.
	defaultTransfers = 10
	// handshakeTime is how long a client may take to present its certificate and its request.
	handshakeTime = 10 * time.Second
	// queueTimeout is how long a request waits for its turn until the client gets the answer to try again later.
	queueTimeout = 20 * time.Second
	// stall is how long a daemon may take to accept the next piece.
	stall = time.Minute
	// leastRate is the minimum rate of a transfer in bytes per second. A slower daemon would block a slot that other
	// daemons need. At this rate, 100 MB take half an hour.
	leastRate = 64 << 10
	// lifetime of the payload server's certificate. The operator creates a new certificate at every start, and is
	// updated more often than that.
	lifetime = 5 * 365 * 24 * time.Hour
	// retryAfter is the shortest time until a daemon tries again if all slots are taken. A random part of up to the
	// same length is added.
	retryAfter = 5 * time.Second
)

// Blobs finds the blobs of the payload; *payload.Dir implements it.
type Blobs interface {
	// Blob returns false if the payload has no such digest.
	Blob(digest string) (payload.Blob, bool)
}

// Options of a payload server. All but Transfers, Connections and Registry are required.
type Options struct {
	Blobs Blobs
	// Names and Addresses are the names and addresses of the payload server for daemons; its certificate is valid for
	// them.
	Names     []string
	Addresses []net.IP
	// Clients returns the CAs that sign the certificates of daemons, or false while they are unknown. It is called for
	// every connection. A dynamiccertificates.CAContentProvider has this method.
	Clients func() (x509.VerifyOptions, bool)
	// Known reports whether a node belongs to the operator.
	Known func(ctx context.Context, node string) (bool, error)
	// Guests reports whether guests may read. Nil means never.
	Guests func(ctx context.Context) (bool, error)
	// Transfers is how many blobs are sent at once; 10 if 0. Guests have half of them.
	Transfers int
	// Connections is how many are open at once without a request; 4096 if 0.
	Connections int
	// Registry for metrics; nil counts nothing.
	Registry prometheus.Registerer
}

// PayloadServer is an HTTPS server for blobs.
type PayloadServer struct {
	Options
	certificate tls.Certificate
	trusted     []byte
	turns       chan struct{}
	shares      shares
	meters      *meters
}

// New creates a payload server with its own certificate. Daemons need the certificate as well as the address: see
// Certificate.
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
	meters, err := newMeters(options.Registry)
	if err != nil {
		return nil, fmt.Errorf("creating a payload server: %w", err)
	}
	return &PayloadServer{Options: options, certificate: certificate, trusted: trusted,
		turns: make(chan struct{}, options.Transfers), shares: shares{nodes: map[string]int{}}, meters: meters}, nil
}

// Certificate is the payload server's own certificate and its CA, as PEM. Both change with every New.
func (s *PayloadServer) Certificate() []byte { return s.trusted }

// Serve answers requests until ctx ends. It closes the listener. Each connection carries one request, so clients can't
// hold idle connections.
func (s *PayloadServer) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: handshakeTime, MaxHeaderBytes: 1 << 14,
		// net/http ends the context of a request that waits longer.
		ReadTimeout: handshakeTime + queueTimeout,
		// send extends it for each piece of a blob.
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
	// A transfer ends with ctx; the daemon asks for the rest later.
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.ServeTLS(newBounded(listener, s.Connections, s.meters.failed), "", "")
	if ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving blobs: %w", err)
	}
	return nil
}

// ServeHTTP hands out blobs one after the other, or the rest of them from an offset: GET of contract.PayloadServerPath
// and a digest. The digests of the following blobs are in the query: see contract.PayloadServerThen.
func (s *PayloadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.meters.requests.WithLabelValues(s.answer(w, r)).Inc()
}

// answer returns how the request ended.
func (s *PayloadServer) answer(w http.ResponseWriter, r *http.Request) (result string) {
	ctx := r.Context()
	if r.ContentLength == 0 { // if a request announces a body, net/http waits for the body
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
	if guest { // all guests share one limit, because anyone may be a guest
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

// busy tells a daemon to try again later.
func busy(w http.ResponseWriter) string {
	w.Header().Set("Retry-After", strconv.Itoa(int((retryAfter + rand.N(retryAfter)).Seconds())))
	http.Error(w, "too many transfers", http.StatusServiceUnavailable)
	return resultBusy
}

// turn waits for a slot among all transfers. It returns false if no slot was free in time.
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

// caller returns the node of the daemon that asks. It is empty if the certificate does not belong to a known node's
// daemon.
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

// blobs returns the requested blobs, up to the first one that the payload doesn't have.
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
		} else if err != nil { // the daemon sees that the answer is too short, and tries again
			logr.FromContextOrDiscard(r.Context()).Error(err, "reading a blob", "digest", b.Digest)
			return resultFailed
		}
		from = max(0, from-b.Size)
	}
	return resultSent
}

// copyFrom copies a blob from an offset on, which may be behind its end.
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

// transfer sends a response. It limits the time for each piece, and the time for the whole response by the minimum
// rate. So a slow link works, and a dead link ends the transfer.
type transfer struct {
	http.ResponseWriter
	control *http.ResponseController
	began   time.Time
	written int64
	bytes   prometheus.Counter
	// failed is set if a piece could not be sent.
	failed bool
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

// writeDeadline is the latest time for the daemon to accept the next piece: within the stall time, and early enough
// to keep the minimum rate of the whole transfer.
func writeDeadline(began, now time.Time, written int64) time.Time {
	rate := began.Add(stall + time.Duration(written)*time.Second/leastRate)
	if next := now.Add(stall); next.Before(rate) {
		return next
	}
	return rate
}
