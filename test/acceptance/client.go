package acceptance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/response"
)

const (
	// maxAnswer bounds one answer of the API server.
	maxAnswer = 128 << 20
	// requestTimeout bounds one request.
	requestTimeout = time.Minute
)

// availability is the state of the API server for all requests of a run. Requests wait for a server that has
// answered before. If one request has waited without success, the others don't wait again.
type availability struct {
	say func(format string, args ...any)
	// limit is how long a request waits.
	limit time.Duration

	mu sync.Mutex
	// expected says that waiting is worth it, away that the last request got no answer.
	expected, away bool
}

// heard notes whether the API server answered.
func (p *availability) heard(answer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected, p.away = p.expected || answer, !answer
}

// expect sets whether requests wait from now on.
func (p *availability) expect(does bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = does
}

// isAway reports whether the last request got no answer.
func (p *availability) isAway() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away
}

// left is how long a request may wait.
func (p *availability) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.expected {
		return 0
	}
	return p.limit
}

// connect makes clients whose requests wait for an API server that is away.
func connect(config *rest.Config, p *availability) (client.Client, *kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, 0 // retrying sets the time-outs of requests
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &retrying{next: next, availability: p} })
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	objects, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	clients, err := kubernetes.NewForConfig(config)
	return objects, clients, err
}

// retrying is a transport that repeats a request while no server listens: the request did not reach the API server,
// so it has no effect twice. It also repeats requests that only read if the connection breaks.
type retrying struct {
	*availability
	next http.RoundTripper
}

// WrappedRoundTripper lets a request that is late be cancelled.
func (p *retrying) WrappedRoundTripper() http.RoundTripper { return p.next }

// RoundTrip is http.RoundTripper.
func (p *retrying) RoundTrip(request *http.Request) (answer *http.Response, err error) {
	told, limit := false, p.left()
	wrongs := wait.PollUntilContextTimeout(request.Context(), time.Second, max(limit, time.Nanosecond), true,
		func(context.Context) (bool, error) {
			again, failed := replay(request)
			if failed != nil {
				return false, failed
			}
			answer, err = p.once(again) //nolint:bodyclose // the caller's
			if request.Context().Err() == nil {
				p.heard(err == nil)
			}
			if err == nil || !retriable(request, err) {
				return true, nil
			}
			if !told && limit > 0 {
				told = true
				p.say("the API server does not answer, waiting for it: %v", err)
			}
			return false, nil
		})
	if wait.Interrupted(wrongs) && request.Context().Err() == nil {
		p.expect(false)
	}
	if err == nil && answer == nil {
		err = wrongs
	}
	return answer, err
}

// once makes a request, with a bound in time up to the end of its answer, and one in bytes.
func (p *retrying) once(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(request.Context(), requestTimeout)
	answer, err := p.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = &body{ReadCloser: response.Body(answer.Body, maxAnswer), end: cancel}
	return answer, nil
}

// body is an answer that ends its context when it is closed.
type body struct {
	io.ReadCloser
	end context.CancelFunc
}

// Close also ends the request.
func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// replay is a request with its body from the beginning.
func replay(request *http.Request) (*http.Request, error) {
	again := request.Clone(request.Context())
	if request.Body == nil || request.GetBody == nil {
		return again, nil
	}
	content, err := request.GetBody()
	again.Body = content
	return again, err
}

// retriable reports whether a request may be made again after an error.
func retriable(request *http.Request, err error) bool {
	if request.Context().Err() != nil || request.Body != nil && request.GetBody == nil {
		return false
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	return request.Method == http.MethodGet
}
