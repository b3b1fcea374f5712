// Package response limits the size of HTTP responses. Code that reads a whole response of an API server or a registry
// uses this package, because a time limit doesn't limit memory. If a response is larger than the limit, reading it
// fails. It is never silently truncated. A response of exactly the limit can be read.
package response

import (
	"errors"
	"io"
	"net/http"
)

// MaxHeader is the maximum size of a response's headers in bytes. Use it for http.Transport.MaxResponseHeaderBytes,
// whose default is 10 MiB. Registries and the operator's servers need less than 8 KiB.
const MaxHeader = 64 << 10

// Transport limits the body of each response that the transport `next` returns. The limit is `most` bytes.
func Transport(next http.RoundTripper, most int64) http.RoundTripper { return transport{next, most} }

type transport struct {
	next http.RoundTripper
	most int64
}

// WrappedRoundTripper returns the inner transport. client-go needs it, for example to cancel a request.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(request)
	if err == nil {
		answer.Body = Body(answer.Body, t.most)
	}
	return answer, err
}

// Body returns a body whose reads fail beyond `most` bytes. It uses http.MaxBytesReader, which is meant for requests
// but also works for responses.
func Body(body io.ReadCloser, most int64) io.ReadCloser { return http.MaxBytesReader(nil, body, most) }

// IsTooLarge reports whether err means that a response was larger than its limit.
func IsTooLarge(err error) bool {
	var large *http.MaxBytesError
	return errors.As(err, &large)
}
