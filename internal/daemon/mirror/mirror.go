package mirror

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/net/http/httpproxy"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// Options of a Service.
type Options struct {
	Network winos.Network
	// Reporter reports pulls to administrators. Optional.
	Reporter *Reporter
}

// Service runs the resolver. It is not safe for concurrent use.
type Service struct {
	Options
	// followed is the digest of the resolver's current configuration, and written the files for it.
	followed string
	written  []contract.File
	resolver *resolver.Resolver
	token    string
	serving  *serving
}

// serving is a resolver that listens.
type serving struct {
	stop context.CancelFunc
	done chan struct{}
}

// ended reports whether the resolver has stopped.
func (s *serving) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// NewService returns a Service. It listens only if there is something to resolve.
func NewService(o Options) *Service { return &Service{Options: o} }

// Close ends the resolver and waits for it. A second call changes nothing.
func (s *Service) Close() {
	if s.serving == nil {
		return
	}
	s.serving.stop()
	<-s.serving.done
	s.serving = nil
}

// Follow applies the cluster's settings of pulls, and returns the files that direct containerd to the resolver.
// environment contains the proxy variables. New rules are in force before a file refers to them.
//
// If another program uses the port, Follow returns the problem, and files that don't refer to the port: otherwise that
// program would act as the node's registry. With any other problem, the files are nil, and containerd's files must stay
// unchanged. If the settings are unchanged, Follow only starts a resolver that doesn't listen.
func (s *Service) Follow(ctx context.Context, c contract.Confidential,
	environment map[string]string) ([]contract.File,
	*contract.Problem) {
	if len(c.Mirrors)+len(c.PullSecret)+len(c.RegistryTrust) == 0 && c.Registries == nil {
		s.Close()
		s.followed = ""
		return []contract.File{}, nil
	}
	inUse := s.serve(ctx)
	if inUse != nil && inUse.Reason != contract.ReasonPortInUse {
		return nil, inUse
	}
	now := digest(c, environment)
	if inUse != nil {
		now = "past the resolver " + now
	}
	if now == s.followed {
		return slices.Clone(s.written), inUse
	}
	rules, secret, problem := read(c)
	if problem != nil {
		return nil, problem
	}
	endpoint := mirror.Endpoint{Hosts: slices.AppendSeq(secret.Hosts(), maps.Keys(c.RegistryTrust))}
	if inUse == nil {
		endpoint.URL, endpoint.Token = "http://127.0.0.1:"+strconv.Itoa(contract.MirrorPort), s.token
	}
	files := filesOf(rules, endpoint)
	s.followed, s.written = now, files
	if inUse != nil {
		return slices.Clone(files), inUse
	}
	s.resolver.Update(resolver.Config{
		Rules: rules, PullSecret: secret, Roots: roots(ctx, c.Trust), RegistryTrust: c.RegistryTrust,
		Proxy: proxy(environment),
	})
	logr.FromContextOrDiscard(ctx).Info("the mirror resolver follows", "rules", len(c.Mirrors),
		"registriesWithCredentials", len(secret.Hosts()), "registriesWithCAs", len(c.RegistryTrust))
	return slices.Clone(files), nil
}

// read parses the cluster's settings of pulls.
func read(c contract.Confidential) (rules mirror.Rules, secret mirror.PullSecret, problem *contract.Problem) {
	rules, err := mirror.NewRules(c.Mirrors)
	if err == nil && c.Registries != nil {
		rules, err = rules.Restrict(*c.Registries)
	}
	if err != nil {
		return rules, secret, contract.ProblemOf(contract.ReasonManifestInvalid, err)
	}
	if len(c.PullSecret) > 0 {
		if secret, err = mirror.ParsePullSecret(c.PullSecret); err != nil {
			return rules, secret, contract.ProblemOf(contract.ReasonPullSecretInvalid, err)
		}
	}
	return rules, secret, nil
}

// serve starts the resolver, which continues after the pass that started it.
func (s *Service) serve(ctx context.Context) *contract.Problem {
	if s.serving != nil && !s.serving.ended() {
		return nil
	}
	s.Close()
	log := logr.FromContextOrDiscard(ctx)
	listener, err := s.Network.Listen(ctx, contract.MirrorPort)
	if errors.Is(err, winos.ErrInUse) {
		return contract.NewProblem(contract.ReasonPortInUse, "another program listens on TCP port %d of the "+
			"loopback, which the mirror resolver needs%s", contract.MirrorPort, s.who(ctx))
	}
	if err != nil {
		return contract.ProblemOf(contract.ReasonInternal, err)
	}
	if err = s.make(); err != nil {
		_ = listener.Close()
		return contract.ProblemOf(contract.ReasonInternal, err)
	}
	running := &serving{done: make(chan struct{})}
	ctx, running.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(running.done)
		if err := s.resolver.Serve(ctx, listener); err != nil {
			log.Info("the mirror resolver ended", "detail", err.Error())
		}
	}()
	s.serving = running
	return nil
}

// make creates a resolver, with a token that identifies containerd to the resolver. Each resolver has a new token,
// which exists only in memory and in containerd's files. While no resolver listened, another program may have
// listened on the port and received the previous token with each pull.
func (s *Service) make() error {
	token := rand.Text() // 130 bits
	made, err := resolver.New(resolver.Options{
		Token: token, OnReport: s.Reporter.Report,
	})
	if err != nil {
		return err
	}
	s.Reporter.Count(made.Counters)
	s.resolver, s.token, s.followed = made, token, ""
	return nil
}

// who returns the program that uses the port, if it is known.
func (s *Service) who(ctx context.Context) string {
	all, err := s.Network.Listening(ctx)
	if program := all[contract.MirrorPort]; err == nil && program != "" {
		return ": " + program
	}
	return ""
}

// filesOf returns the files that containerd reads, as package apply writes them.
func filesOf(rules mirror.Rules, endpoint mirror.Endpoint) []contract.File {
	all, files := mirror.HostsFiles(rules, endpoint), []contract.File{}
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		files = append(files, contract.File{Path: contract.DirRegistries + `\` + dir + `\` + mirror.HostsFile,
			Content: string(all[dir])})
	}
	return files
}

// roots returns the machine's own CAs and the cluster's. The cluster's CAs also get into the machine's store, but
// possibly later.
func roots(ctx context.Context, trust []string) *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("the machine's CAs can't be read; only the cluster's count for "+
			"pulls", "detail", err.Error())
		pool = x509.NewCertPool()
	}
	for _, text := range trust {
		pool.AppendCertsFromPEM([]byte(text))
	}
	return pool
}

// proxy returns the proxy settings of the node's programs. The daemon's own environment may be older.
func proxy(environment map[string]string) func(*http.Request) (*url.URL, error) {
	get := func(name string) string {
		for other, value := range environment {
			if strings.EqualFold(other, name) {
				return value
			}
		}
		return ""
	}
	choose := (&httpproxy.Config{HTTPProxy: get("HTTP_PROXY"), HTTPSProxy: get("HTTPS_PROXY"),
		NoProxy: get("NO_PROXY")}).ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}

// digest returns the digest of all settings of the resolver.
func digest(c contract.Confidential, environment map[string]string) string {
	sum := sha256.New()
	// Encode can't fail for these values.
	_ = json.NewEncoder(sum).Encode([]any{c.Mirrors, c.Registries, c.PullSecret, c.RegistryTrust, c.Trust, environment})
	return hex.EncodeToString(sum.Sum(nil))
}
