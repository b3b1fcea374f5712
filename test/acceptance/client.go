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
	// maxAnswer is the maximum size of one answer of the API server, in bytes.
	maxAnswer = 128 << 20
	// requestTimeout is the time limit of one request.
	requestTimeout = time.Minute
)

// availability records whether the API server answers. All requests of a run share it. If the server has answered
// before, requests wait for the server. If one request has waited without success, the others don't wait again.
type availability struct {
	say func(format string, args ...any)
	// limit is the longest time that a request waits.
	limit time.Duration

	mu sync.Mutex
	// expected: requests wait for the server. away: the last request got no answer.
	expected, away bool
}

// heard records whether the API server answered a request.
func (p *availability) heard(answer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected, p.away = p.expected || answer, !answer
}

// expect sets whether requests wait for the server from now on.
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

// left returns how long a request may still wait.
func (p *availability) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.expected {
		return 0
	}
	return p.limit
}

// connect creates clients. If the API server doesn't answer, the clients' requests wait for the server.
func connect(config *rest.Config, p *availability) (client.Client, *kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, 0 // the type retrying limits the time of requests
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

// retrying is a transport that repeats failed requests. If the connection was refused, the request did not reach the
// API server, so repeating it is safe. If the connection breaks during an answer, only requests that read are repeated.
type retrying struct {
	*availability
	next http.RoundTripper
}

// WrappedRoundTripper returns the inner transport, so that a request can be cancelled when its time is over.
func (p *retrying) WrappedRoundTripper() http.RoundTripper { return p.next }

// RoundTrip implements http.RoundTripper.
func (p *retrying) RoundTrip(request *http.Request) (answer *http.Response, err error) {
	told, limit := false, p.left()
	wrongs := wait.PollUntilContextTimeout(request.Context(), time.Second, max(limit, time.Nanosecond), true,
		func(context.Context) (bool, error) {
			again, failed := replay(request)
			if failed != nil {
				return false, failed
			}
			answer, err = p.once(again) //nolint:bodyclose // the caller closes the body
			if request.Context().Err() == nil {
				p.heard(err == nil)
			}
			if err == nil || !retriable(request, err) {
				return true, nil
			}
			if !told && limit > 0 {
				told = true
				p.say("the API server does not answer; waiting for it: %v", err)
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

// once makes one request. It limits the size of the answer, and the time until the answer is complete.
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

// body is the body of an answer. Closing it also cancels the request's context.
type body struct {
	io.ReadCloser
	end context.CancelFunc
}

// Close closes the body and cancels the request.
func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// replay returns a copy of a request whose body can be read again from the beginning.
func replay(request *http.Request) (*http.Request, error) {
	again := request.Clone(request.Context())
	if request.Body == nil || request.GetBody == nil {
		return again, nil
	}
	content, err := request.GetBody()
	again.Body = content
	return again, err
}

// retriable reports whether a failed request may be repeated.
func retriable(request *http.Request, err error) bool {
	if request.Context().Err() != nil || request.Body != nil && request.GetBody == nil {
		return false
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	return request.Method == http.MethodGet
}
