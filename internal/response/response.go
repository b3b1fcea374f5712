// Package response bounds what an answer over HTTP may hold. Whoever reads all of what an API server
// or a registry sends uses it: a time-out bounds the time, not the memory. It never cuts an answer
// short in silence: one that is too long fails where its bound is passed, and one of exactly the
// bound is read.
package response

import (
	"errors"
	"io"
	"net/http"
)

// MaxHeader bounds the headers of an answer in bytes, for http.Transport.MaxResponseHeaderBytes, whose
// default is 10 MiB. Registries and servers of ours need less than 8 KiB.
const MaxHeader = 64 << 10

// Transport has every answer of another transport end after so many bytes.
func Transport(next http.RoundTripper, most int64) http.RoundTripper { return transport{next, most} }

type transport struct {
	next http.RoundTripper
	most int64
}

// WrappedRoundTripper lets client-go find what is below, such as to cancel a request that is late.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip is http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(request)
	if err == nil {
		answer.Body = Body(answer.Body, t.most)
	}
	return answer, err
}

// Body fails when more than so many bytes are read of it. http.MaxBytesReader is made for requests,
// and does for answers what is needed.
func Body(body io.ReadCloser, most int64) io.ReadCloser { return http.MaxBytesReader(nil, body, most) }

// IsTooLarge reports whether an answer passed its bound.
func IsTooLarge(err error) bool {
	var large *http.MaxBytesError
	return errors.As(err, &large)
}
