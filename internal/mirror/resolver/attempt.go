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
	// credential is for this place, and shown to nobody else.
	credential mirror.Credential
	path       string
	accept     []string
	span       span
	// firstByte is how long the first byte may take, stall how long any later one.
	firstByte, stall time.Duration
	// forbidden is the host, as mirror.CanonicalHost has it, that a redirect must not lead to; empty
	// if there is none but those of the rules.
	forbidden string
}

// reply is an answer with a status of success, of which the first byte is there.
type reply struct {
	method string // by which it was got
	status int
	header http.Header
	length int64 // of the body, or -1
	// first and end are the positions of the body's first byte and behind its last one, and size is that of
	// all content; -1 if they aren't known.
	first, end, size int64
	body             *body
}

func (r *reply) close() { _ = r.body.Close() }

// hops bounds redirects. Registries redirect once; a content network behind them once or twice
// more.
const hops = 5

// ask sends a question and waits for the first byte of the answer. Its error is a fault, or the
// context's if that ended.
func (s *state) ask(ctx context.Context, q question) (*reply, error) {
	limited, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(q.firstByte, func() { cancel(errSlow) })
	answer, err := s.send(limited, q)
	if err == nil {
		answer.body.guard(limited, timer, q.stall, cancel)
		err = answer.body.prime()
	}
	if err == nil {
		err = context.Cause(limited) // what comes as the connection is closed is the end of the handler, no answer
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

// send asks with what is remembered as proof for the source, and again with a new proof if the source
// wants one.
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

// headLength is the length that the answer to a HEAD names, or -1.
func headLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// sendFollowing sends a request and follows its redirects. Only an address of the same scheme, host and
// port gets the Authorization header again, and only what it answers says which token it wants: own
// says whether the response is of that address.
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
			// an insecure registry that speaks no TLS
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

// forbids says whether a redirect leads to a registry, or a repository, that must not be contacted.
func (s *state) forbids(q question, to *url.URL) bool {
	repository := ""
	if path, ok := strings.CutPrefix(to.Path, "/v2/"); ok {
		if t, err := parsePath(path); err == nil {
			repository = t.repository
		}
	}
	return mirror.CanonicalHost(to.Host) == q.forbidden || !s.rules.MayLead(q.at, to.Host, repository)
}

// redirected is where a redirect leads, without user info.
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

// discard gives a connection back, if that costs little.
func discard(response *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 16<<10))
	_ = response.Body.Close()
}

// body is what an answer brings. Each leastRead of it may take so long and no longer, or one that
// trickles would hold its slot for ever; time in which nobody reads does not count.
type body struct {
	inner io.ReadCloser
	first []byte // read ahead
	timer *time.Timer
	stall time.Duration
	// spent and got are how long reading took since the last leastRead was complete, and what came.
	spent  time.Duration
	got    int
	cause  func() error
	cancel context.CancelCauseFunc
}

// leastRead makes about 2 KiB/s the least throughput, with the default time for it.
const leastRead = 64 << 10

// firstRead is what one record of TLS holds.
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
		return nil // a later read says it again
	}
	return err
}

// Read gives io.EOF only at the body's proper end. Its other errors are faults.
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

// span is a range of bytes: from the first to the last, both counted from 0; last is -1 if it goes
// to the end.
type span struct{ first, last int64 }

// everything is the span of no range.
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

// parseSpan reads a Range header with one range from a position on. Everything else, which
// containerd never asks for, is no range: the specification of HTTP lets a server answer with the
// whole.
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

// parsePosition reads digits only; a sign is none.
func parsePosition(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 62)
	return int64(n), err == nil && text[0] != '+' //nolint:gosec // 62 bits fit
}

// parseContentRange reads "bytes first-last/total" with total -1 for an asterisk.
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
