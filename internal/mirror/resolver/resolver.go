package resolver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// Options are what does not change while the daemon runs. Durations and numbers that are 0 take the
// default.
type Options struct {
	// Token is what a request must carry in mirror.TokenHeader, see mirror.Authorization. It must
	// have at least 16 characters.
	Token string
	// Connect is how long a connection and its TLS handshake may take, each. Default 5 s: time for
	// the first SYN and two more.
	Connect time.Duration
	// FirstByte is how long a place may take for its first byte (authentication and redirects
	// included) as long as there is another one to ask. Default 15 s.
	FirstByte time.Duration
	// LastFirstByte is how long if there is no other, which is time for a mirror that must first
	// fetch a large layer itself. Default 2 min.
	LastFirstByte time.Duration
	// Stall is how long any later 64 KiB may take. Default 30 s.
	Stall time.Duration
	// Whole is how long a place may take for all of a manifest, or for an answer without a body, if there
	// is no other one to ask. Otherwise it has FirstByte and Stall together. A request ends when it has
	// waited as long for all places as one round takes. Default 1 min.
	Whole time.Duration
	// Header is how long containerd may wait for the header of an answer, before it is sent to the same
	// address again; after nine times as long a request ends in any case. It must be less than what
	// containerd waits for one (30 s, fixed), and nine times less than its
	// image_pull_progress_timeout (5 min). Default 25 s.
	Header time.Duration
	// Request is how long a request may take to come, with its body. Default 10 s.
	Request time.Duration
	// Pause is how long to wait before a place is asked again that was busy and did not say for how
	// long. It doubles. Default 1 s.
	Pause time.Duration
	// Streams is how many layers are pulled at a time, at most half of them of one host, and at most three
	// quarters of registries that the cluster does not name; further ones wait before anybody is asked
	// for them. Each takes 2 MiB of memory. As many manifests are pulled besides. Default 32.
	Streams int
	// OnReport is told of a pull for which registries were skipped, when that is news: not again
	// for each layer or attempt that ends the same way. It must return at once. Optional.
	OnReport func(Report)
	// PlainLoopback are host:port of registries on loopback addresses that speak http without TLS.
	// For tests; nothing else is ever spoken to without TLS.
	PlainLoopback []string
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (o Options) defaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Connect, 5 * time.Second}, {&o.FirstByte, 15 * time.Second}, {&o.LastFirstByte, 2 * time.Minute},
		{&o.Stall, 30 * time.Second}, {&o.Whole, time.Minute}, {&o.Header, 25 * time.Second},
		{&o.Request, 10 * time.Second}, {&o.Pause, time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.Streams <= 0 {
		o.Streams = 32 // kubelet pulls many images at a time, containerd three layers of each
	}
	if o.OnReport == nil {
		o.OnReport = func(Report) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Resolver is the node's registry of images. It is safe for concurrent use.
type Resolver struct {
	options    Options
	token      [sha256.Size]byte // of the header that has it
	pods       *memory[string, podAccess]
	kinds      *pullKinds
	mismatches *mismatches
	records    *records
	rooms      map[endpoint]*room
	chunks     *sync.Pool
	parked     sync.Map // ticket → *search

	mu      sync.RWMutex
	current *state // nil before the first Update
}

var _ http.Handler = (*Resolver)(nil)

// minToken is what can't be guessed: 16 characters of base64 are 96 bits.
const minToken = 16

// New makes a resolver. It answers 503 until Update has told it the rules.
func New(o Options) (*Resolver, error) {
	if len(o.Token) < minToken {
		return nil, fmt.Errorf("making the resolver: the token has less than %d characters", minToken)
	}
	o = o.defaults()
	return &Resolver{
		options: o, token: sha256.Sum256([]byte(mirror.Authorization(o.Token))),
		pods:  newMemory[string, podAccess](podRoom, o.Now),
		kinds: newPullKinds(o.Now), mismatches: newMismatches(o.Now), records: newRecords(o.Now),
		rooms:  map[endpoint]*room{manifests: newRoom(o.Streams), blobs: newRoom(o.Streams)},
		chunks: &sync.Pool{New: func() any { return new(chunk) }},
	}, nil
}

// Update puts a configuration in the place of the one before, at once and as a whole. Requests that
// are under way end with the one that they began with. What was remembered about dead hosts and
// tokens goes with the old one; repeating a call costs that and nothing else.
func (r *Resolver) Update(c Config) {
	fresh := newState(r.options, c)
	r.mu.Lock()
	old := r.current
	r.current = fresh
	r.mu.Unlock()
	if old != nil {
		old.retire()
	}
}

// acquire gives the current state, which must be released.
func (r *Resolver) acquire() (*state, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.current == nil {
		return nil, false
	}
	r.current.users.Add(1)
	return r.current, true
}

// Reports are the latest pulls for which registries were skipped, the newest first, at most 64.
func (r *Resolver) Reports() []Report { return r.records.latest() }

// Counters are what happened at each registry since the start, by host, and how many requests of
// containerd ended without their bytes.
func (r *Resolver) Counters() (byHost []Counter, failures int64) { return r.records.counts() }

// Serve answers on a listener, which must be of a loopback address, until ctx ends; then it gives
// requests that are under way a moment. The listener is closed in any case. It logs to the logger
// of ctx. It returns nil when ctx ended.
func (r *Resolver) Serve(ctx context.Context, listener net.Listener) error {
	defer listener.Close()
	if address, ok := listener.Addr().(*net.TCPAddr); !ok || !address.IP.IsLoopback() {
		return fmt.Errorf("serving the mirror resolver: %s is no loopback address", listener.Addr())
	}
	server := &http.Server{
		Handler: r,
		// Net/http lifts it once a request is there as a whole: an answer may take longer.
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
	if stop() { // ctx goes on
		_ = server.Close()
		return fmt.Errorf("serving the mirror resolver: %w", err)
	}
	<-stopped
	return nil
}

// grace is what is left to requests when the daemon stops: enough for a manifest. Containerd goes
// on with a layer where it was.
const grace = 2 * time.Second

func (r *Resolver) shutdown(ctx context.Context, server *http.Server) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(limited); err != nil {
		_ = server.Close()
	}
	r.parked.Range(func(t, _ any) bool {
		r.drop(t.(ticket))
		return true
	})
	if s, ok := r.acquire(); ok { // it may be served again
		s.transport.closeIdle()
		s.release()
	}
}

// ServeHTTP answers one request of containerd.
func (r *Resolver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	trusted, handle := r.authenticate(request)
	if !trusted {
		w.Header().Set("Connection", "close") // any local process gets here, and holds nothing
	}
	if !trusted && handle == "" {
		refuse(w, http.StatusForbidden, codeDenied, "access denied")
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
		refuse(w, http.StatusMethodNotAllowed, codeUnsupported, "nothing can be pushed or deleted here")
		return
	}
	if t.endpoint == ping {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
		return
	}
	ticket := ticketOf(request, t, handle)
	s := r.claim(ticket)
	if s == nil {
		current, ok := r.acquire()
		if !ok {
			refuse(w, http.StatusServiceUnavailable, codeUnavailable, "the mirror rules are not known yet")
			return
		}
		p := newPull(r, current, t, request)
		p.pod = pod
		s = r.search(request, p)
	}
	r.wait(w, request, s, ticket)
}

// wait answers when a pull has something to say, but in time in any case.
func (r *Resolver) wait(w http.ResponseWriter, request *http.Request, s *search, t ticket) {
	var timeout <-chan time.Time
	if s.turn++; s.turn < turns { // else it ends before that
		timer := time.NewTimer(r.options.Header)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-s.done:
		r.serve(w, request, s)
	case <-timeout:
		r.park(w, request, s, t)
	case <-request.Context().Done():
		s.leave()
		panic(http.ErrAbortHandler)
	}
}

func (r *Resolver) serve(w http.ResponseWriter, request *http.Request, s *search) {
	defer lift(w)
	defer s.leave()
	if s.failure != "" {
		panic(s.failure)
	}
	defer context.AfterFunc(request.Context(), func() { s.stop(nil) })()
	err := s.err
	if err == nil {
		err = s.give(w)
	}
	if errors.Is(err, errNowhere) && s.isFirstByDigest() {
		r.kinds.begin(s.target, s.target.digest, contract.PullByDigest, false)
	}
	if request.Context().Err() != nil { // who is gone needs no report
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	if errors.Is(err, errNowhere) && s.sourceDenied && s.pod == nil {
		challengePod(w, request, s.target, "")
		return
	}
	s.close(request.Context(), w, err)
}

// isFirstByDigest says whether this is the request that a pull by digest begins with.
func (p *pull) isFirstByDigest() bool {
	return p.method == http.MethodHead && p.target.endpoint == manifests && p.target.digest != ""
}

// take waits until there is room for one more request of its kind. It comes before anybody is
// asked, so that no answer waits to be read. Without a body a request takes no more than a manifest
// does.
func (r *Resolver) take(ctx context.Context, p *pull) (release func(), err error) {
	kind := manifests
	if p.flows() {
		kind = blobs
	}
	_, known := p.state.secret.For(p.target.registry, p.target.repository)
	return r.rooms[kind].take(ctx, p.target.registry, known || p.state.rules.Names(p.target.registry))
}

// close files what there is to report, and ends an answer that could not be given.
func (p *pull) close(ctx context.Context, w http.ResponseWriter, err error) {
	switch {
	case err == nil && len(p.attempts) == 0:
		return
	case errors.Is(err, errUnread):
		logr.FromContextOrDiscard(ctx).WithName("resolver").V(1).Info("the client takes no more", "image",
			p.target.name())
		panic(http.ErrAbortHandler)
	}
	report := Report{Image: p.target.registry + "/" + p.target.repository, Attempts: p.attempts, Refused: p.refused,
		NoPlace: errors.Is(err, errLate) && len(p.attempts) == 0}
	if err == nil {
		report.Served = p.served.Host + "/" + p.served.Repository
	} else {
		report.Image = p.target.name()
	}
	filed, news := p.resolver.records.add(report)
	log := logr.FromContextOrDiscard(ctx).WithName("resolver").WithValues("image", p.target.name(), "attempts",
		attemptTexts(p.attempts), "count", filed.Count)
	if news {
		p.resolver.options.OnReport(filed)
	} else {
		log = log.V(1)
	}
	switch {
	case err == nil:
		log.Info("registries were skipped", "served", report.Served)
	case errors.Is(err, errBroken):
		log.Info("pull broke off")
		panic(http.ErrAbortHandler) // ends the answer so that the client knows that it is not complete
	case report.NoPlace:
		log.Info("too many pulls are under way")
		refuse(w, http.StatusBadGateway, codeUnavailable, report.Message())
	default:
		log.Info("pull failed")
		p.resolver.kinds.doubt(p.target)
		refuseNowhere(w, p.target, report)
	}
}

func attemptTexts(all []Attempt) []string {
	texts := make([]string, len(all))
	for i, a := range all {
		texts[i] = a.String()
	}
	return texts
}

// How an answer that was begun can end early.
var (
	errBroken = errors.New("no place can complete it")
	errUnread = errors.New("the client takes no more")
)
