package resolver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// question is one request to one source.
type question struct {
	method string
	at     mirror.Pull
	// credential is for this source only. It must not be sent to another host.
	credential mirror.Credential
	path       string
	accept     []string
	span       span
	// firstByte bounds the wait for the first byte, stall the wait for any later one.
	firstByte, stall time.Duration
	// forbidden is a host, in the form of mirror.CanonicalHost, that no redirect may lead to. If forbidden is
	// empty, only the rules restrict redirects.
	forbidden string
}

// reply is a successful answer whose first byte has arrived.
type reply struct {
	method string // of the request that was answered
	status int
	header http.Header
	length int64 // of the body, or -1
	// first is the position of the body's first byte, end the position after its last byte, and size the size of the
	// whole content. end and size are -1 if unknown.
	first, end, size int64
	body             *body
}

func (r *reply) close() { _ = r.body.Close() }

// hops bounds redirects. A registry redirects once, and its content network once or twice more.
const hops = 5

// ask sends a question and waits for the first byte of the answer. Its error is a fault, or the context's error if the
// context has ended.
func (s *state) ask(ctx context.Context, q question) (*reply, error) {
	limited, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(q.firstByte, func() { cancel(errSlow) })
	answer, err := s.send(limited, q)
	if err == nil {
		answer.body.guard(limited, timer, q.stall, cancel)
		err = answer.body.prime()
	}
	if err == nil {
		err = context.Cause(limited) // bytes that arrive while the connection closes are no answer
	}
	if err == nil {
		return answer, nil
	}
	timer.Stop()
	f := faultOf(limited, err)
	cancel(nil)
	if answer != nil {
		answer.close()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, f
}

// send sends the request with the stored proof for the source, and once more with a new proof if the source requires
// one.
func (s *state) send(ctx context.Context, q question) (*reply, error) {
	proof := s.keys.remembered(q)
	for isNew := false; ; {
		response, own, err := s.sendFollowing(ctx, q, proof)
		if err != nil {
			return nil, err
		}
		switch status := response.StatusCode; {
		case status == http.StatusOK || status == http.StatusPartialContent && !q.span.isEverything():
			return replyOf(response, q)
		case status == http.StatusPartialContent:
			discard(response)
			return nil, faultf(ReasonWrongContent, "it gives a part")
		case status == http.StatusUnauthorized && own && !isNew:
			discard(response)
			if proof, err = s.keys.prove(ctx, q, s.way(q.at), response); err != nil {
				return nil, err
			}
			isNew = true
		case status == http.StatusMethodNotAllowed && q.method == http.MethodHead:
			discard(response) // Some registries know no HEAD. The header of a GET says the same.
			q.method = http.MethodGet
		default:
			discard(response)
			return nil, refusal(response)
		}
	}
}

func replyOf(response *http.Response, q question) (*reply, error) {
	h, r := response.Header, &reply{method: q.method, status: response.StatusCode, header: response.Header,
		length: response.ContentLength, body: &body{inner: response.Body}}
	if q.method == http.MethodHead {
		r.length = headLength(h)
	}
	r.end, r.size = r.length, r.length
	if encoding := h.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		discard(response)
		return nil, faultf(ReasonWrongContent, "content is encoded")
	}
	if r.status == http.StatusPartialContent {
		part, total, ok := parseContentRange(h.Get("Content-Range"))
		if !ok || r.length >= 0 && r.length != part.last+1-part.first {
			discard(response)
			return nil, faultf(ReasonWrongContent, "it gives another range")
		}
		r.first, r.end, r.size = part.first, part.last+1, total
	}
	return r, nil
}

// headLength returns the length in the answer to a HEAD, or -1.
func headLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// sendFollowing sends a request and follows its redirects. It sends the Authorization header only to addresses with the
// original scheme, host and port. own reports whether the response comes from such an address, because only then its
// challenge may be followed.
func (s *state) sendFollowing(ctx context.Context, q question, authorization string) (response *http.Response, own bool,
	err error) {
	address := &url.URL{Scheme: "https", Host: q.at.Address(), Path: q.path}
	if s.transport.isPlain(address.Host) {
		address.Scheme = "http"
	}
	origin, way := authority(address.Scheme, address.Host), s.way(q.at)
	for range hops {
		request, err := http.NewRequestWithContext(ctx, q.method, address.String(), nil)
		if err != nil {
			return nil, false, faultf(ReasonForbidden, "redirected to what is no address")
		}
		request.Header["Accept"] = q.accept
		request.Header.Set("Accept-Encoding", "identity")
		request.Header.Set("User-Agent", "wmco-resolver")
		q.span.ask(request.Header)
		if authorization != "" && authority(address.Scheme, address.Host) == origin {
			request.Header.Set("Authorization", authorization)
		}
		response, err := way.RoundTrip(request)
		if err != nil {
			return nil, false, err
		}
		if sent := response.Request; sent != nil && sent.URL.Scheme != address.Scheme {
			// The registry is insecure and speaks no TLS.
			if authority(address.Scheme, address.Host) == origin {
				origin = authority(sent.URL.Scheme, sent.URL.Host)
			}
			address = sent.URL
		}
		location := response.Header.Get("Location")
		if response.StatusCode/100 != 3 || location == "" {
			return response, authority(address.Scheme, address.Host) == origin, nil
		}
		discard(response)
		if address, err = redirected(address, location); err != nil {
			return nil, false, err
		}
		if s.forbids(q, address) {
			return nil, false, errForbidden
		}
	}
	return nil, false, faultf(ReasonFailing, "more than %d redirects", hops)
}

// forbids reports whether a redirect leads to a registry or a repository that must not be contacted.
func (s *state) forbids(q question, to *url.URL) bool {
	repository := ""
	if path, ok := strings.CutPrefix(to.Path, "/v2/"); ok {
		if t, err := parsePath(path); err == nil {
			repository = t.repository
		}
	}
	return mirror.CanonicalHost(to.Host) == q.forbidden || !s.rules.MayLead(q.at, to.Host, repository)
}

// redirected returns the target of a redirect, without user info.
func redirected(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	switch {
	case err != nil || to.Host == "":
		return nil, faultf(ReasonFailing, "redirected to what is no address")
	case from.Scheme == "https" && to.Scheme != "https":
		return nil, faultf(ReasonForbidden, "redirected from https to something else")
	}
	to.User, to.Fragment = nil, ""
	return to, nil
}

// discard releases a connection for reuse, if little remains to read.
func discard(response *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 16<<10))
	_ = response.Body.Close()
}

// body is the body of an answer. Each leastRead bytes must arrive within stall. Otherwise a trickling body would
// occupy its slot forever. Time doesn't count while the client isn't reading.
type body struct {
	inner io.ReadCloser
	first []byte // read ahead
	timer *time.Timer
	stall time.Duration
	// spent and got are the reading time and the bytes since the last complete leastRead.
	spent  time.Duration
	got    int
	cause  func() error
	cancel context.CancelCauseFunc
}

// leastRead results in a minimum throughput of about 2 KiB/s with the default stall.
const leastRead = 64 << 10

// firstRead is the maximum content of a TLS record.
const firstRead = 16 << 10

func (b *body) guard(ctx context.Context, timer *time.Timer, stall time.Duration, cancel context.CancelCauseFunc) {
	b.timer, b.stall, b.cancel = timer, stall, cancel
	b.cause = func() error { return context.Cause(ctx) }
}

// prime waits for the first byte.
func (b *body) prime() error {
	defer b.timer.Stop()
	buffer := make([]byte, firstRead)
	n, err := b.inner.Read(buffer)
	for n == 0 && err == nil {
		n, err = b.inner.Read(buffer)
	}
	b.first = buffer[:n]
	if n > 0 || errors.Is(err, io.EOF) {
		return nil // a later read returns the error again
	}
	return err
}

// Read returns io.EOF only at the regular end of the body. Its other errors are faults.
func (b *body) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	began := time.Now()
	b.timer.Reset(b.stall - b.spent)
	n, err := b.inner.Read(p)
	b.timer.Stop()
	b.spent += time.Since(began)
	if b.got += n; b.got >= leastRead {
		b.spent, b.got = 0, 0
	}
	switch {
	case err == nil || errors.Is(err, io.EOF):
	case errors.Is(b.cause(), errSlow):
		err = faultf(ReasonBrokenOff, "too little came for %s", b.stall)
	default:
		err = faultf(ReasonBrokenOff, "connection broken off")
	}
	return n, err
}

func (b *body) Close() error {
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.cancel != nil {
		defer b.cancel(nil)
	}
	return b.inner.Close()
}

// span is a range of bytes from first to last, both counted from 0. last is -1 if the range has no end.
type span struct{ first, last int64 }

// everything returns the span of the whole content.
func everything() span { return span{0, -1} }

func (s span) isEverything() bool { return s.first == 0 && s.last < 0 }

func (s span) ask(h http.Header) {
	if s.isEverything() {
		return
	}
	text := "bytes=" + strconv.FormatInt(s.first, 10) + "-"
	if s.last >= 0 {
		text += strconv.FormatInt(s.last, 10)
	}
	h.Set("Range", text)
}

// parseSpan parses a Range header with one range that has a start position. It ignores all other ranges, which
// containerd never requests. HTTP allows a server to answer these with the whole content.
func parseSpan(header string) (s span, ranged bool) {
	text, ok := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(text, "-")
	if !ok || !dash {
		return everything(), false
	}
	s = everything()
	if s.first, ok = parsePosition(first); !ok {
		return everything(), false
	}
	if last == "" {
		return s, true
	}
	if s.last, ok = parsePosition(last); !ok || s.last < s.first {
		return everything(), false
	}
	return s, true
}

// parsePosition parses digits only, without a sign.
func parsePosition(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 62)
	return int64(n), err == nil && text[0] != '+' //nolint:gosec // 62 bits fit
}

// parseContentRange parses "bytes first-last/total". total is -1 for an asterisk.
func parseContentRange(header string) (s span, total int64, ok bool) {
	text, ok := strings.CutPrefix(header, "bytes ")
	if !ok {
		return span{}, 0, false
	}
	between, all, ok := strings.Cut(text, "/")
	if !ok {
		return span{}, 0, false
	}
	first, last, ok := strings.Cut(between, "-")
	if !ok {
		return span{}, 0, false
	}
	var ok1, ok2 bool
	s.first, ok1 = parsePosition(first)
	s.last, ok2 = parsePosition(last)
	total = -1
	ok3 := true
	if all != "*" {
		total, ok3 = parsePosition(all)
	}
	ok = ok1 && ok2 && ok3 && s.first <= s.last && (total < 0 || s.last < total)
	return s, total, ok
}
