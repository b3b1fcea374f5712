package resolver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// question describes one request to one source.
type question struct {
	pull   *pull
	at     mirror.Location
	method string
	offset int64 // offset of the first requested byte
}

// reply is a successful answer of a source. At least its first byte has arrived.
type reply struct {
	method string // method of the request that was answered
	status int
	header http.Header
	length int64 // length of the body, or -1 if unknown
	offset int64 // offset of the body's first byte in the content
	size   int64 // size of the whole content, or -1 if unknown
	body   *body
}

func (r *reply) close() { _ = r.body.Close() }

// hops is the maximum number of redirects. A registry redirects once. Its content network redirects once or twice more.
const hops = 5

// ask sends the question and waits for the first byte of the answer, but no longer than limit. If ctx has ended, the
// error is ctx's error. All other errors are of type *fault.
func (q question) ask(ctx context.Context, limit time.Duration) (*reply, error) {
	limited, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(errSlow) })
	answer, err := q.send(limited)
	if err == nil {
		err = answer.body.prime(limited, timer, q.pull.resolver.options.Stall, cancel)
	}
	if err == nil {
		err = context.Cause(limited) // bytes that arrive while the connection closes are not an answer
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

// send sends the request with the stored proof for the source. If the source requires a new proof, send gets one and
// sends the request again.
func (q question) send(ctx context.Context) (*reply, error) {
	proof := q.remembered()
	for isNew := false; ; {
		response, own, err := q.sendFollowing(ctx, proof)
		if err != nil {
			return nil, err
		}
		switch status := response.StatusCode; {
		case status == http.StatusOK || status == http.StatusPartialContent && q.offset > 0:
			return replyOf(response, q.method)
		case status == http.StatusPartialContent:
			discard(response)
			return nil, faultf(ReasonWrongContent, "it gives a part")
		case status == http.StatusUnauthorized && own && !isNew:
			discard(response)
			if proof, err = q.prove(ctx, response); err != nil {
				return nil, err
			}
			isNew = true
		case status == http.StatusForbidden && own && proof != "" && !isNew:
			// Some registries answer 403 to an expired token, but 401 to a request without a token.
			discard(response)
			proof = ""
		case status == http.StatusMethodNotAllowed && q.method == http.MethodHead:
			discard(response) // Some registries don't support HEAD. GET returns the same header.
			q.method = http.MethodGet
		default:
			discard(response)
			return nil, refusal(response.StatusCode)
		}
	}
}

func replyOf(response *http.Response, method string) (*reply, error) {
	h, r := response.Header, &reply{method: method, status: response.StatusCode, header: response.Header,
		length: response.ContentLength, body: &body{ReadCloser: response.Body,
			ahead: bufio.NewReaderSize(response.Body, firstRead)}}
	if method == http.MethodHead {
		r.length = headLength(h)
	}
	r.size = r.length
	if encoding := h.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		discard(response)
		return nil, faultf(ReasonWrongContent, "content is encoded")
	}
	if r.status == http.StatusPartialContent {
		var ok bool
		r.offset, r.size, ok = parseContentRange(h.Get("Content-Range"))
		if !ok || r.length >= 0 && r.length != r.size-r.offset {
			discard(response)
			return nil, faultf(ReasonWrongContent, "it gives another range")
		}
	}
	return r, nil
}

// headLength returns the content's length from the answer to a HEAD request, or -1 if it is missing or invalid.
func headLength(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// sendFollowing sends a request and follows redirects. It sends the Authorization header only to addresses with the
// original scheme, host and port. The result `own` reports whether the response comes from such an address. If not, the
// caller must ignore an authentication challenge in the response.
func (q question) sendFollowing(ctx context.Context, authorization string) (response *http.Response, own bool,
	err error) {
	address := url.URL{Scheme: "https", Host: q.at.Address(), Path: q.pull.target.path(q.at.Path)}
	request, err := http.NewRequestWithContext(ctx, q.method, address.String(), nil)
	if err != nil {
		return nil, false, faultf(ReasonForbidden, "its name is no address")
	}
	request.Header["Accept"] = q.pull.accept
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "wmco-resolver")
	if q.offset > 0 {
		request.Header.Set("Range", rangeFrom(q.offset))
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	origin := ""
	client := http.Client{Transport: q.pull.state.way(q.at)}
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		from := next.Response.Request.URL // The scheme is http if an insecure registry has no TLS.
		if len(via) == 1 {
			origin = authority(from.Scheme, from.Host)
		}
		if len(via) == hops {
			return faultf(ReasonFailing, "more than %d redirects", hops)
		}
		to, err := redirected(from, next.Response.Header.Get("Location"))
		if err != nil {
			return err
		}
		next.URL = to
		if q.forbids(to) {
			return faultf(ReasonForbidden, "it leads to a source that must never be contacted")
		}
		next.Header.Del("Referer")
		next.Header.Del("Authorization")
		if authorization != "" && authority(to.Scheme, to.Host) == origin {
			next.Header.Set("Authorization", authorization)
		}
		return nil
	}
	if response, err = client.Do(request); err != nil {
		return nil, false, err
	}
	at := response.Request.URL
	return response, origin == "" || authority(at.Scheme, at.Host) == origin, nil
}

// `forbids` reports whether a redirect leads to a registry or a repository that must not be contacted.
func (q question) forbids(address *url.URL) bool {
	to := mirror.At(address.Host, "")
	if path, ok := strings.CutPrefix(address.Path, "/v2/"); ok {
		if t, err := parsePath(path); err == nil {
			to = mirror.At(address.Host, t.image.Path)
		}
	}
	return to.Host == q.pull.forbidden || !q.pull.state.Rules.MayLead(q.at, to)
}

// `redirected` returns a redirect's target without user info. It refuses a redirect from https to another scheme.
func redirected(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	switch {
	case err != nil || to.Host == "":
		return nil, faultf(ReasonFailing, "redirected to what is no address")
	case from.Scheme == "https" && to.Scheme != "https":
		return nil, faultf(ReasonForbidden, "redirected from https to something else")
	}
	to.User = nil
	return to, nil
}

// discard closes a response's body. If little of it remains, discard reads the rest first, to reuse the connection.
func discard(response *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 16<<10))
	_ = response.Body.Close()
}

// body is the body of an answer. Reading fails if leastRead bytes don't arrive within stall. Without this limit, a body
// that trickles would never end. The time between two reads, when the client is busy, doesn't count.
type body struct {
	io.ReadCloser
	ahead *bufio.Reader // reads ahead from ReadCloser
	timer *time.Timer
	stall time.Duration
	// `spent` is the time of reading. `got` is the number of bytes. After leastRead bytes, both restart at 0.
	spent  time.Duration
	got    int
	cause  func() error
	cancel context.CancelCauseFunc
}

// leastRead is how many bytes must arrive within stall. With the default stall, this is about 2 KiB/s.
const leastRead = 64 << 10

// firstRead is the size of the buffer that reads ahead: the maximum content of a TLS record.
const firstRead = 16 << 10

// prime waits for the first byte of the body. The caller has started the timer, which cancels ctx when the time is
// over. After the first byte, stall limits the time of the reads.
func (b *body) prime(ctx context.Context, timer *time.Timer, stall time.Duration,
	cancel context.CancelCauseFunc) error {
	b.timer, b.stall, b.cancel = timer, stall, cancel
	b.cause = func() error { return context.Cause(ctx) }
	defer timer.Stop()
	if _, err := b.ahead.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Read returns io.EOF only at the regular end of the body. Its other errors are faults.
func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	b.timer.Reset(b.stall - b.spent)
	n, err := b.ahead.Read(p)
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
		defer b.cancel(nil)
	}
	return b.ReadCloser.Close()
}

// rangeFrom returns the value of a Range header for all bytes from offset on.
func rangeFrom(offset int64) string { return fmt.Sprintf("bytes=%d-", offset) }

// parseRange parses a Range header in the form of rangeFrom. For any other header, `ranged` is false: containerd
// requests no other ranges, and HTTP allows a server to answer them with the whole content.
func parseRange(header string) (offset int64, ranged bool) {
	_, err := fmt.Sscanf(header, "bytes=%d-", &offset)
	if err != nil || offset < 0 || rangeFrom(offset) != header {
		return 0, false
	}
	return offset, true
}

// contentRange returns a Content-Range header for all bytes from offset on. `size` is the size of the whole content.
func contentRange(offset, size int64) string {
	return fmt.Sprintf("bytes %d-%d/%d", offset, size-1, size)
}

// parseContentRange parses a Content-Range header in the form of contentRange. For any other header, `ok` is false.
func parseContentRange(header string) (offset, size int64, ok bool) {
	var last int64
	_, err := fmt.Sscanf(header, "bytes %d-%d/%d", &offset, &last, &size)
	ok = err == nil && 0 <= offset && offset < size && contentRange(offset, size) == header
	return offset, size, ok
}
