package resolver

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// lastMoment answers as its client gives up, with nothing.
type lastMoment struct{}

// RoundTrip is http.RoundTripper.
func (lastMoment) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// A server detects that its client closes the connection and ends its handler. The empty response arrives before
// the client has closed its own end. This was once treated as content, and so as wrong content.
func TestAnAnswerThatComesAsItsTimeEndsIsNone(t *testing.T) {
	t.Parallel()
	rules, err := mirror.NewRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newState(Options{}.defaults(), Config{Rules: rules})
	s.transport.common.RegisterProtocol("https", lastMoment{})
	answer, err := s.ask(t.Context(), question{method: http.MethodGet, at: mirror.At("mirror.test", "a"),
		credential: mirror.Credential{RegistryToken: "t"}, path: "/v2/a/blobs/x",
		firstByte: time.Millisecond, stall: time.Minute})
	var f *fault
	if !errors.As(err, &f) || f.reason != ReasonSlow {
		t.Errorf("answered %+v, %v", answer, err)
	}
}
