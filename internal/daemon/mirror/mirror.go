package mirror

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strconv"

	"github.com/go-logr/logr"
	"golang.org/x/net/http/httpproxy"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// Service runs the resolver, which listens only if there is something to resolve. It is not safe for concurrent use.
type Service struct {
	Network  winos.Network
	Reporter *Reporter

	followed *settings // the resolver's current settings; nil before the first
	resolver *resolver.Resolver
	token    string
	serving  *serving
}

type settings struct {
	contract.Confidential
	environment map[string]string
}

type serving struct {
	stop context.CancelFunc
	done chan struct{}
}

// Close stops the resolver and waits until it has ended. A second call changes nothing.
func (s *Service) Close() {
	if s.serving == nil {
		return
	}
	s.serving.stop()
	<-s.serving.done
	s.serving = nil
}

// Follow applies the cluster's settings for pulls. It returns the file that directs containerd to the resolver, or an
// empty list if there is nothing to resolve. `environment` contains the proxy variables. When Follow returns, the
// resolver already uses the new rules.
//
// If another program uses the resolver's port, Follow returns a problem, and a file that directs containerd nowhere.
// Otherwise the other program would act as the node's registry. With any other problem, the files are nil, and
// containerd's files must stay unchanged. If the settings are the same as in the last call, Follow only makes sure that
// the resolver is listening. The caller must not change the settings after the call.
func (s *Service) Follow(ctx context.Context, c contract.Confidential,
	environment map[string]string) ([]contract.File, *contract.Problem) {
	if len(c.Mirrors)+len(c.PullSecret)+len(c.RegistryTrust) == 0 && c.Registries == nil {
		s.Close()
		return []contract.File{}, nil
	}
	if problem := s.serve(ctx); problem != nil {
		if problem.Reason == contract.ReasonPortInUse {
			return []contract.File{{Path: contract.PathHosts, Content: mirror.HostsFile("", "")}}, problem
		}
		return nil, problem
	}
	c.Salt, c.Environment, c.Files = nil, nil, nil // the resolver doesn't use these fields
	if now := (&settings{c, environment}); !reflect.DeepEqual(now, s.followed) {
		rules, secret, problem := read(c)
		if problem != nil {
			return nil, problem
		}
		s.resolver.Update(resolver.Config{
			Rules: rules, PullSecret: secret, Roots: roots(ctx, c.Trust), RegistryTrust: c.RegistryTrust,
			Proxy: proxy(environment),
		})
		s.followed = now
		logr.FromContextOrDiscard(ctx).Info("the mirror resolver follows", "rules", len(c.Mirrors),
			"credentials", len(c.PullSecret) > 0, "registriesWithCAs", len(c.RegistryTrust))
	}
	url := "http://127.0.0.1:" + strconv.Itoa(contract.MirrorPort)
	return []contract.File{{Path: contract.PathHosts, Content: mirror.HostsFile(url, s.token)}}, nil
}

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

// serve starts the resolver if it isn't listening. The resolver runs until Close, even after ctx ends.
func (s *Service) serve(ctx context.Context) *contract.Problem {
	if s.serving != nil {
		select {
		case <-s.serving.done:
		default:
			return nil
		}
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
	// The resolver recognises containerd by its token, which exists only in memory and in containerd's files. Each
	// resolver needs a new token: while no resolver was listening, another program may have listened on the port and
	// received the previous token from containerd.
	s.token, s.followed = rand.Text(), nil // 130 bits
	s.resolver = resolver.New(resolver.Options{Token: s.token, OnReport: s.Reporter.Report,
		Metrics: s.Reporter.metrics})
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

// `who` returns ": " and the program that uses the port, or an empty string if the program is unknown.
func (s *Service) who(ctx context.Context) string {
	all, err := s.Network.Listening(ctx)
	if program := all[contract.MirrorPort]; err == nil && program != "" {
		return ": " + program
	}
	return ""
}

// roots returns the machine's CAs, and the cluster's CAs, which may not be in the machine's store yet.
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

// proxy returns the proxy settings in the node's environment, because the daemon's own environment may be outdated.
func proxy(environment map[string]string) func(*http.Request) (*url.URL, error) {
	choose := (&httpproxy.Config{HTTPProxy: environment["HTTP_PROXY"], HTTPSProxy: environment["HTTPS_PROXY"],
		NoProxy: environment["NO_PROXY"]}).ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}
