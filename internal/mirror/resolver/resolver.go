package resolver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// Options are the settings that don't change while the daemon runs. A duration of 0 means the default.
type Options struct {
	// Token is the secret that each request must have in mirror.TokenHeader: see mirror.Authorization.
	Token string
	// Connect is the maximum time to open a connection. The same limit applies separately to the TLS handshake. Default
	// 5 s: enough for the first SYN and two retries.
	Connect time.Duration
	// FirstByte is the maximum time until a source's first byte, or its whole manifest, has arrived, including
	// authentication and redirects. It doesn't apply to the last source that remains. Default 15 s.
	FirstByte time.Duration
	// Header is the maximum time that all sources together may take for a manifest, or for the first byte of a part of
	// a layer. It must be less than containerd's timeout for a header (30 s, fixed). If a request for a whole layer
	// takes longer, the resolver sends the header after this time, and the bytes when they arrive. Default 25 s.
	Header time.Duration
	// LastFirstByte is the maximum time, for all sources together, until a layer's first byte arrives, or its next byte
	// after a source failed. It is long enough for a mirror that must first fetch the layer. Default 2 min.
	LastFirstByte time.Duration
	// Stall is the maximum time for each 64 KiB after the first byte. Default 30 s.
	Stall time.Duration
	// Request is the maximum time to receive a request with its body from a client. Default 10 s.
	Request time.Duration
	// OnReport is called after each request that failed or that skipped registries. It must return at once. Optional.
	OnReport func(Report)
	// Metrics counts the requests. Default: new metrics.
	Metrics *Metrics
}

func (o Options) defaults() Options {
	o.Connect = cmp.Or(o.Connect, 5*time.Second)
	o.FirstByte = cmp.Or(o.FirstByte, 15*time.Second)
	o.Header = cmp.Or(o.Header, 25*time.Second)
	o.LastFirstByte = cmp.Or(o.LastFirstByte, 2*time.Minute)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.Request = cmp.Or(o.Request, 10*time.Second)
	if o.OnReport == nil {
		o.OnReport = func(Report) {}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	return o
}

// Resolver is the node's own registry of images. It is safe for concurrent use.
type Resolver struct {
	options Options
	token   [sha256.Size]byte // digest of the TokenHeader that a request must have
	pods    *memory[string, podAccess]
	kinds   *memory[mirror.Location, contract.PullKind] // the kind of the latest pull of each repository
	buffers sync.Pool
	current atomic.Pointer[state] // nil before the first Update
}

var _ http.Handler = (*Resolver)(nil)

// New returns a resolver. Until the first call of Update, the resolver answers 503.
func New(o Options) *Resolver {
	o = o.defaults()
	return &Resolver{
		options: o, token: sha256.Sum256([]byte(mirror.Authorization(o.Token))),
		pods:    newMemory[string, podAccess](podRoom),
		kinds:   newMemory[mirror.Location, contract.PullKind](kindsKept),
		buffers: sync.Pool{New: func() any { return new([bufferSize]byte) }},
	}
}

// Update replaces the whole configuration atomically. Running requests continue with the configuration that they began
// with. Each call of Update discards the stored proofs, and the record of hosts in trouble, even if the configuration
// is the same.
func (r *Resolver) Update(c Config) { r.current.Store(newState(r.options, c)) }

// Serve answers requests on a listener until ctx ends. The listener's address must be a loopback address. After ctx
// ends, running requests get a short time to finish, and Serve returns nil. Serve always closes the listener. It logs
// to the logger of ctx.
func (r *Resolver) Serve(ctx context.Context, listener net.Listener) error {
	defer listener.Close()
	if address, ok := listener.Addr().(*net.TCPAddr); !ok || !address.IP.IsLoopback() {
		return fmt.Errorf("serving the mirror resolver: %s is not a loopback address", listener.Addr())
	}
	server := &http.Server{
		Handler: r,
		// This limit ends when the request is complete, so the answer may take longer.
		ReadTimeout:    r.options.Request,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		BaseContext:    func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logr.FromContextOrDiscard(ctx).WithName("resolver")),
			slog.LevelInfo),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		r.shutdown(ctx, server)
	})
	err := server.Serve(listener)
	if stop() { // ctx has not ended
		_ = server.Close()
		return fmt.Errorf("serving the mirror resolver: %w", err)
	}
	<-stopped
	return nil
}

// grace is a shutdown's time limit for running requests. containerd later continues a layer that was cut off.
const grace = 2 * time.Second

func (r *Resolver) shutdown(ctx context.Context, server *http.Server) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(limited); err != nil {
		_ = server.Close()
	}
}

// ServeHTTP answers one request of containerd.
func (r *Resolver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	trusted, handle := r.authenticate(request)
	if !trusted {
		w.Header().Set("Connection", "close") // any local process can connect, so don't let it keep the connection
	}
	if !trusted && handle == "" {
		refuse(w, http.StatusForbidden, transport.DeniedErrorCode, "access denied")
		return
	}
	if trusted && request.URL.Path == podTokenPath {
		r.issue(w, request)
		return
	}
	t, err := parseTarget(request.URL)
	if err != nil {
		refuseTarget(w, err)
		return
	}
	var pod *podAccess
	if !trusted {
		if pod = r.access(handle, t); pod == nil {
			challengePod(w, request, t, "invalid_token")
			return
		}
		w.Header().Del("Connection")
	}
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, transport.UnsupportedErrorCode, "nothing can be pushed or deleted here")
		return
	}
	if t.endpoint == ping {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
		return
	}
	current := r.current.Load()
	if current == nil {
		refuse(w, http.StatusServiceUnavailable, transport.UnavailableErrorCode, "the mirror rules are not known yet")
		return
	}
	// Remove the write deadline of this answer. Otherwise it would also apply to the connection's next answer.
	defer func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) }()
	p := r.newPull(current, t, request, pod)
	p.end(w, request, p.run(request.Context(), w))
}
