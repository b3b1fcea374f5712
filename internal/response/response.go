// Package response limits the size of HTTP responses. Code that reads the whole response of an API server or a
// registry uses this package, because a time-out doesn't limit the memory. It never truncates a response silently:
// reading a larger response fails at the limit, and a response of exactly the limit is read.
package response

import (
	"errors"
	"io"
	"net/http"
)

// MaxHeader limits the headers of a response in bytes, for http.Transport.MaxResponseHeaderBytes, whose default is 10
// MiB. Registries and the operator's servers need less than 8 KiB.
const MaxHeader = 64 << 10

// Transport limits every response of another transport to a number of bytes.
func Transport(next http.RoundTripper, most int64) http.RoundTripper { return transport{next, most} }

type transport struct {
	next http.RoundTripper
	most int64
}

// WrappedRoundTripper lets client-go find the inner transport, for example to cancel a request.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip is http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(request)
	if err == nil {
		answer.Body = Body(answer.Body, t.most)
	}
	return answer, err
}

// Body fails if more than the given number of bytes are read. It uses http.MaxBytesReader, which is meant for
// requests but also works for answers.
func Body(body io.ReadCloser, most int64) io.ReadCloser { return http.MaxBytesReader(nil, body, most) }

// IsTooLarge reports whether an answer passed its bound.
func IsTooLarge(err error) bool {
	var large *http.MaxBytesError
	return errors.As(err, &large)
}
