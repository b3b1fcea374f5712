// Package payloadserver answers how nodes get what they lack of the payload while they serve: it
// hands out blobs by their digest, to daemons of known nodes only.
//
// The operator runs it beside its controllers; daemons pull from it. It knows no host and no
// version, never writes, and keeps nothing of a transfer: a daemon that was interrupted asks for
// the rest of a blob with a range request.
package payloadserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
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

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Limits of the payload server.
const (
	// defaultTransfers keeps a fleet that stages at once from starving the nodes' network and ours:
	// ten streams fill a 10 Gbit/s link.
	defaultTransfers = 10
	// queueTimeout is how long a request waits for its turn before it is told to come back.
	queueTimeout = 20 * time.Second
	// stall is how long a daemon may take to accept the next piece.
	stall = time.Minute
	// comeBack is the shortest time after which a request that found no place is to come back; as
	// much again is added by chance.
	comeBack = 5 * time.Second
)

// Blobs are what can be had; *payload.Dir is one.
type Blobs interface {
	// Blob is false for a digest that is not there.
	Blob(digest string) (payload.Blob, bool)
}

// Options of a payload server. All but Transfers, Connections and Registry are required.
type Options struct {
	Blobs Blobs
	// Names and addresses by which daemons reach the payload server; its certificate is for them.
	Names     []string
	Addresses []net.IP
	// Clients gives the CAs that sign the certificates of daemons. It is asked anew for
	// every connection.
	Clients func(ctx context.Context) (*x509.CertPool, error)
	// Known says whether a node is one of ours.
	Known func(ctx context.Context, node string) (bool, error)
	// Transfers is how many blobs are sent at once; 10 if 0.
	Transfers int
	// Connections is how many are open at once; 4096 if 0.
	Connections int
	// Registry for metrics; nil counts nothing.
	Registry prometheus.Registerer
}

// PayloadServer is an HTTPS server for blobs.
type PayloadServer struct {
	Options
	certificate tls.Certificate
	turns       chan struct{}
	shares      shares
	meters      *meters
}

// New makes a payload server with a certificate of its own. Whoever tells daemons about the payload
// server tells them the certificate, too: see Certificate.
func New(options Options) (*PayloadServer, error) {
	if options.Blobs == nil || options.Clients == nil || options.Known == nil ||
		len(options.Names)+len(options.Addresses) == 0 {
		return nil, errors.New("making a payload server: an option is missing")
	}
	if options.Transfers == 0 {
		options.Transfers = defaultTransfers
	}
	if options.Connections == 0 {
		options.Connections = maxConnections
	}
	certificate, err := selfSigned(options.Names, options.Addresses, time.Now())
	if err != nil {
		return nil, fmt.Errorf("making the payload server's certificate: %w", err)
	}
	meters, err := newMeters(options.Registry)
	if err != nil {
		return nil, fmt.Errorf("making a payload server: %w", err)
	}
	return &PayloadServer{Options: options, certificate: certificate, turns: make(chan struct{}, options.Transfers),
		meters: meters}, nil
}

// Certificate is the payload server's own, as PEM. It changes with every New.
func (s *PayloadServer) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Certificate[0]})
}

// Serve answers requests until ctx ends. It closes the listener.
func (s *PayloadServer) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: handshakeTime,
		// Requests have no bodies: one that promises a body and never sends it holds nothing.
		ReadTimeout: handshakeTime, IdleTimeout: stall, MaxHeaderBytes: 1 << 14,
		ErrorLog:    newErrorLog(logr.FromContextOrDiscard(ctx)),
		ConnContext: connContext,
		BaseContext: func(net.Listener) context.Context { return ctx },
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				clientCAs, err := s.Clients(ctx)
				if err != nil {
					return nil, fmt.Errorf("finding the CAs of daemons: %w", err)
				}
				return &tls.Config{
					MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{s.certificate},
					ClientAuth: tls.RequireAndVerifyClientCert,
					ClientCAs:  clientCAs,
				}, nil
			},
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ends the transfers; daemons come back for the rest
	defer stop()
	if err := server.ServeTLS(newBounded(listener, s.Connections, s.meters.failed), "", ""); ctx.Err() == nil &&
		!errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving blobs: %w", err)
	}
	return nil
}

// ServeHTTP hands out one blob, or a range of it: GET or HEAD of contract.PayloadServerPath and a
// digest.
func (s *PayloadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.meters.requests.WithLabelValues(s.answer(w, r)).Inc()
}

// answer says how it ended.
func (s *PayloadServer) answer(w http.ResponseWriter, r *http.Request) (result string) {
	ctx := r.Context()
	node, err := s.caller(ctx, r.TLS)
	if !keep(ctx, node) {
		w.Header().Set("Connection", "close") // its place is for others
	}
	digest, found := strings.CutPrefix(r.URL.Path, contract.PayloadServerPath)
	switch {
	case !found:
		http.NotFound(w, r)
		return resultRefused
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return resultRefused
	case err != nil:
		logr.FromContextOrDiscard(ctx).Error(err, "looking up a daemon")
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return resultFailed
	case node == "":
		http.Error(w, "this is for daemons of known nodes", http.StatusForbidden)
		return resultRefused
	}
	blob, found := s.Blobs.Blob(digest)
	if !found {
		http.NotFound(w, r)
		return resultMissing
	}
	own, leave, ok := s.shares.take(node)
	if !ok {
		return busy(w)
	}
	defer leave()
	release, ok := s.turn(ctx, own)
	if !ok {
		return busy(w)
	}
	defer release()
	return s.send(w, r, blob)
}

// busy has a daemon come back later.
func busy(w http.ResponseWriter) string {
	w.Header().Set("Retry-After", strconv.Itoa(int((comeBack + rand.N(comeBack)).Seconds())))
	http.Error(w, "too many transfers", http.StatusServiceUnavailable)
	return resultBusy
}

// caller is the node whose daemon asks, or nothing when it is none of ours.
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

// turn waits for a place among those of its node and then among all transfers; false when there was
// none in time.
func (s *PayloadServer) turn(ctx context.Context, own chan struct{}) (release func(), ok bool) {
	s.meters.waiting.Inc()
	defer s.meters.waiting.Dec()
	timer := time.NewTimer(queueTimeout)
	defer timer.Stop()
	if !turn(ctx, own, timer.C) {
		return nil, false
	}
	if !turn(ctx, s.turns, timer.C) {
		<-own
		return nil, false
	}
	s.meters.sending.Inc()
	return func() {
		s.meters.sending.Dec()
		<-s.turns
		<-own
	}, true
}

func (s *PayloadServer) send(w http.ResponseWriter, r *http.Request, blob payload.Blob) (result string) {
	log := logr.FromContextOrDiscard(r.Context())
	content, err := blob.Open()
	if err != nil {
		log.Error(err, "opening a blob", "digest", blob.Digest)
		http.Error(w, "the blob can't be read", http.StatusInternalServerError)
		return resultFailed
	}
	defer func() {
		if err := content.Close(); err != nil {
			log.Error(err, "closing a blob", "digest", blob.Digest)
		}
	}()
	seeker, ok := content.(io.ReadSeeker)
	if !ok {
		http.Error(w, "the blob can't be sent in part", http.StatusInternalServerError)
		return resultFailed
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+blob.Digest+`"`)
	counted := &metered{ResponseWriter: &rollingDeadline{ResponseWriter: w, control: http.NewResponseController(w),
		began: time.Now()},
		bytes: s.meters.bytes}
	http.ServeContent(counted, r, "", time.Time{}, seeker)
	if counted.failed {
		return resultCut
	}
	return resultSent
}

// rollingDeadline gives the other side time for each piece, and as much for the whole as the least rate
// takes: a slow link is fine, a dead one is not.
type rollingDeadline struct {
	http.ResponseWriter
	control *http.ResponseController
	began   time.Time
	written int64
}

func (p *rollingDeadline) Write(piece []byte) (int, error) {
	deadline := writeDeadline(p.began, time.Now(), p.written)
	if err := p.control.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.ResponseWriter.Write(piece)
	p.written += int64(n)
	return n, err
}
