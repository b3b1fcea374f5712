package resolver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// maxHeld is up to which size a blob is read and checked as a whole before its first byte goes to
// containerd, so that a wrong or broken one costs nothing but another place. It takes less memory
// than a stream.
const maxHeld = 1 << 20

// blob finds the answer to a request for a blob. Cancel ends ctx.
func (p *pull) blob(ctx context.Context, cancel context.CancelFunc,
	asked string) (give func(http.ResponseWriter) error, err error) {
	if p.method == http.MethodHead {
		return p.blobHead(ctx)
	}
	part, ranged := parseSpan(asked)
	size := p.resolver.kinds.size(p.target)
	if size > 0 && part.first >= size {
		return func(w http.ResponseWriter) error {
			w.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
			refuse(w, http.StatusRequestedRangeNotSatisfiable, codeUnsupported, "the range begins behind the end")
			return nil
		}, nil
	}
	f := &flow{pull: p, part: part, ranged: ranged, size: size, sized: size > 0, named: size > 0}
	var held []byte
	answer, at, err := p.next(ctx, http.MethodGet, part, func(_ context.Context, at mirror.Pull, r *reply) error {
		before := *f
		err := f.take(r, part.first)
		if err == nil && f.isSmall() {
			held, err = p.hold(at, r)
		}
		if err != nil {
			*f = before // what it said about the size is worth nothing
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	p.served = at
	if held != nil {
		answer.close()
		return func(w http.ResponseWriter) error {
			f.head(w, http.StatusOK)
			p.resolver.kinds.arrived(p.target)
			p.resolver.records.served(at.Host, 1, int64(len(held)))
			return write(w, held)
		}, nil
	}
	return func(w http.ResponseWriter) error { return f.run(ctx, cancel, w, answer, at) }, nil
}

// hold reads a small blob whole and checks it.
func (p *pull) hold(at mirror.Pull, r *reply) ([]byte, error) {
	content, err := readWhole(r, maxHeld)
	if err != nil {
		return nil, err
	}
	h := p.target.digest.hash()
	_, _ = h.Write(content)
	if !p.target.digest.isSum(h) {
		p.resolver.mismatches.blame(p.target.digest, at)
		return nil, faultf(ReasonWrongContent, "the digest is another")
	}
	return content, nil
}

func (p *pull) blobHead(ctx context.Context) (give func(http.ResponseWriter) error, err error) {
	var size int64
	answer, at, err := p.next(ctx, http.MethodHead, everything(), func(_ context.Context, _ mirror.Pull,
		r *reply) error {
		known := p.resolver.kinds.size(p.target)
		d, legal := parseDigest(r.header.Get("Docker-Content-Digest"))
		switch {
		case r.length < 0:
			return faultf(ReasonFailing, "it does not say how large it is")
		case known > 0 && r.length != known:
			return faultf(ReasonWrongContent, "it has %d bytes instead of %d", r.length, known)
		case legal && sameAlgorithm(d, p.target.digest) && d != p.target.digest:
			return faultf(ReasonWrongContent, "it has another digest")
		}
		size = r.length
		return nil
	})
	if err != nil {
		return nil, err
	}
	answer.close()
	p.served = at
	return func(w http.ResponseWriter) error {
		(&flow{pull: p, part: everything(), size: size, sized: true}).head(w, http.StatusOK)
		p.resolver.records.served(at.Host, 1, 0)
		return nil
	}, nil
}

// flow is a blob, or a part of one, on its way through.
type flow struct {
	pull   *pull
	part   span
	ranged bool
	size   int64 // of the whole blob
	sized  bool  // whether size is known
	named  bool  // whether a manifest says so, against which containerd checks what it gets
}

// isSmall says whether the answer is read whole before it is passed on.
func (f *flow) isSmall() bool { return f.sized && f.size <= maxHeld && !f.ranged }

// isWhole says whether the answer can be checked against the digest, because all of it comes
// through here.
func (f *flow) isWhole() bool {
	return f.part.first == 0 && (f.part.last < 0 || f.sized && f.part.last >= f.size-1)
}

// end is the position after the last byte of the answer; false if it isn't known.
func (f *flow) end() (int64, bool) {
	if f.part.last >= 0 && (!f.sized || f.part.last < f.size) {
		return f.part.last + 1, true
	}
	return f.size, f.sized
}

// take checks what a place says of its answer against what is known, learns the size if that is not
// known yet, and skips what comes before the wanted position, if the place knows no ranges.
func (f *flow) take(r *reply, position int64) error {
	if r.status == http.StatusPartialContent {
		return f.takePart(r, position)
	}
	switch {
	case r.length < 0 && f.sized: // the digest will tell
	case r.length < 0 && !f.part.isEverything():
		return faultf(ReasonFailing, "it does not say how large it is")
	case r.length < 0:
	case f.sized && r.length != f.size:
		return faultf(ReasonWrongContent, "it has %d bytes instead of %d", r.length, f.size)
	case r.length <= position && position > 0:
		return faultf(ReasonWrongContent, "it has only %d bytes", r.length)
	default:
		f.size, f.sized = r.length, true
	}
	return skip(r.body, position)
}

func (f *flow) takePart(r *reply, position int64) error {
	s, total, ok := parseContentRange(r.header.Get("Content-Range"))
	wrong := !ok || s.first != position || r.length >= 0 && r.length != s.last-s.first+1
	if ok && !f.sized && total > 0 {
		f.size, f.sized = total, true
	}
	if end, bounded := f.end(); wrong || f.sized && total >= 0 && total != f.size || bounded && s.last != end-1 {
		return faultf(ReasonWrongContent, "it gives another range")
	}
	if !f.sized && f.part.last < 0 {
		f.part.last = s.last // nobody says how much there is, but where this ends
	}
	return nil
}

// skip reads what is not wanted.
func skip(from io.Reader, n int64) error {
	skipped, err := io.CopyN(io.Discard, from, n)
	if errors.Is(err, io.EOF) {
		return faultf(ReasonWrongContent, "it has only %d bytes", skipped)
	}
	return err
}

// head writes the answer's headers.
func (f *flow) head(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Docker-Content-Digest", string(f.pull.target.digest))
	h.Set("Accept-Ranges", "bytes")
	h.Set("ETag", strconv.Quote(string(f.pull.target.digest)))
	if end, ok := f.end(); ok {
		h.Set("Content-Length", strconv.FormatInt(end-f.part.first, 10))
	}
	w.WriteHeader(status)
}

// run passes the answer on.
func (f *flow) run(ctx context.Context, cancel context.CancelFunc, w http.ResponseWriter, first *reply,
	at mirror.Pull) error {
	status := http.StatusOK
	if end, bounded := f.end(); f.ranged && bounded {
		total := "*"
		if f.sized {
			total = strconv.FormatInt(f.size, 10)
		}
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%s", f.part.first, end-1, total))
	}
	f.head(w, status)
	return newStream(f, first, at).run(ctx, cancel, w)
}
