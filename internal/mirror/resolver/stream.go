package resolver

import (
	"context"
	"errors"
	"hash"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// A stream is two hands at work:
//
//	place ─► read (hash) ─► chunk ─► write ─► containerd
//
// containerd hashes what it stores, so what a manifest named that went through here is hashed only
// if there is doubt (see mismatches): it would be more than half of what a stream takes of the
// processors. What is hashed is held back by its last chunk until all of it agrees with the digest.
// Chunks go round, so a stream takes the same memory whatever flows through it.
type stream struct {
	flow     *flow
	source   *reply
	at       mirror.Pull
	position int64         // of the next byte from the place
	end      int64         // of the answer
	bounded  bool          // whether end is known
	whole    hash.Hash     // nil if nobody is in doubt, or only a part comes through
	bringers []mirror.Pull // everybody who brought bytes
	borrowed []*chunk      // from the pool, at most chunks
	free     chan *chunk
	full     chan *chunk
}

// Chunks are so large that passing them on takes no time worth mentioning: on two processors 512
// KiB pass 3 % more than 256 KiB, and 7 % more than 64 KiB.
const (
	chunkSize = 512 << 10
	chunks    = 4
)

type chunk struct {
	space [chunkSize]byte
	bytes []byte
}

func newStream(f *flow, first *reply, at mirror.Pull) *stream {
	s := &stream{flow: f, source: first, at: at, position: f.part.first, bringers: []mirror.Pull{at},
		free: make(chan *chunk, chunks), full: make(chan *chunk, chunks)}
	s.end, s.bounded = f.end()
	if f.isWhole() && (!f.named || f.pull.resolver.mismatches.doubts(at, f.pull.target.digest)) {
		s.whole = f.pull.target.digest.hash()
	}
	return s
}

// run passes everything on. It returns nil if the answer is complete and, as far as it was hashed,
// right; errBroken or errUnread if it must be broken off, or the context's error. Cancel stops
// whatever the stream still reads.
func (s *stream) run(ctx context.Context, cancel context.CancelFunc, w http.ResponseWriter) error {
	read := make(chan error, 1)
	go func() {
		defer close(s.full)
		read <- s.read(ctx)
	}()
	sent, held, writing := s.write(w)
	if writing != nil {
		cancel()
	}
	reading := <-read
	s.source.close()
	err := s.finish(ctx, w, held, errors.Join(writing, reading))
	s.settle(sent, held, err)
	for _, c := range s.borrowed {
		s.flow.pull.resolver.chunks.Put(c)
	}
	return err
}

// next is a chunk to be filled. The first byte does not wait for memory that only later ones need.
func (s *stream) next(ctx context.Context) (*chunk, error) {
	select {
	case c := <-s.free:
		return c, nil
	default:
	}
	if len(s.borrowed) < chunks {
		c := s.flow.pull.resolver.chunks.Get().(*chunk)
		s.borrowed = append(s.borrowed, c)
		return c, nil
	}
	select {
	case c := <-s.free:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// settle counts what went through.
func (s *stream) settle(sent int64, held []byte, err error) {
	p := s.flow.pull
	if err != nil {
		p.resolver.records.served(s.at.Host, 0, sent)
		return
	}
	p.served = s.at
	p.resolver.records.served(s.at.Host, 1, sent+int64(len(held)))
}

// finish lets go of the last bytes, if everything that was hashed agrees with the digest.
func (s *stream) finish(ctx context.Context, w http.ResponseWriter, held []byte, err error) error {
	p := s.flow.pull
	switch {
	case err != nil && errors.Is(err, errUnread):
		return errUnread
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errBroken
	case s.whole != nil && !p.target.digest.isSum(s.whole):
		p.resolver.mismatches.blame(p.target.digest, s.bringers...)
		for _, at := range s.bringers {
			p.note(at, faultf(ReasonWrongContent, "the digest is another"), 0)
		}
		return errBroken
	}
	return write(w, held)
}

// clientStall is how long containerd may leave bytes unread. It writes them to disk, which can be
// busy.
const clientStall = 5 * time.Minute

// write gives bytes to the client, which has a time to take them. It says errUnread if it does not.
func write(w http.ResponseWriter, content []byte) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(clientStall)) // a writer of a test can't
	if _, err := w.Write(content); err != nil {
		return errUnread
	}
	return nil
}

// lift takes the limit back, as the connection lives on.
func lift(w http.ResponseWriter) { _ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) }

// write passes chunks on as they come, and holds back the last one.
func (s *stream) write(w http.ResponseWriter) (sent int64, held []byte, err error) {
	position := s.flow.part.first
	pass := func(c *chunk) error {
		if err := write(w, c.bytes); err != nil {
			return err
		}
		if sent == 0 {
			_ = http.NewResponseController(w).Flush() // the first bytes should not wait for more
		}
		sent += int64(len(c.bytes))
		s.free <- c
		return nil
	}
	var last *chunk
	for c := range s.full {
		position += int64(len(c.bytes))
		if last != nil {
			if err = pass(last); err != nil {
				return sent, nil, err
			}
			last = nil
		}
		if s.whole != nil && (!s.bounded || position >= s.end) {
			last = c
		} else if err = pass(c); err != nil {
			return sent, nil, err
		}
	}
	if last != nil {
		held = last.bytes
	}
	return sent, held, nil
}

// read fills chunks until the end of the answer, from another place if one dies on the way.
func (s *stream) read(ctx context.Context) error {
	for {
		c, err := s.next(ctx)
		if err != nil {
			return err
		}
		n, err := s.fill(c)
		// Before containerd has the last byte: it may ask again at once.
		if errors.Is(err, io.EOF) && !s.flow.ranged {
			s.flow.pull.resolver.kinds.arrived(s.flow.pull.target)
		}
		if errors.Is(err, io.EOF) && s.whole == nil {
			s.flow.pull.resolver.mismatches.passed(s.flow.pull.target.digest, s.bringers)
		}
		if n > 0 {
			s.position += int64(n)
			if s.whole != nil {
				_, _ = s.whole.Write(c.bytes)
			}
			select {
			case s.full <- c:
			case <-ctx.Done():
				return ctx.Err()
			}
		} else {
			s.free <- c
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		default:
			if err = s.another(ctx, err); err != nil {
				return err
			}
		}
	}
}

// fill reads until the chunk is full, but passes the very first bytes on as they are. It says
// io.EOF at the end of the answer, and there only.
func (s *stream) fill(c *chunk) (int, error) {
	room := c.space[:]
	if s.bounded {
		room = room[:min(int64(len(room)), s.end-s.position)]
	}
	n := 0
	for n < len(room) {
		more, err := s.source.body.Read(room[n:])
		n += more
		c.bytes = room[:n]
		switch {
		case s.ended(n) != nil:
			return n, io.EOF // whatever comes after the last byte
		case errors.Is(err, io.EOF) && s.bounded:
			return n, faultf(ReasonBrokenOff, "ended early")
		case err != nil:
			return n, err
		case s.position == s.flow.part.first && n > 0:
			return n, nil
		}
	}
	return n, s.ended(n)
}

// ended is io.EOF when all that was asked for is there.
func (s *stream) ended(n int) error {
	if s.bounded && s.position+int64(n) >= s.end {
		return io.EOF
	}
	return nil
}

// another goes on from where a place left off, at the next one. It says errBroken if nobody can.
func (s *stream) another(ctx context.Context, why error) error {
	p := s.flow.pull
	var f *fault
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errors.As(why, &f) {
		f = faultf(ReasonBrokenOff, "connection broken off")
	}
	s.source.close()
	p.broke(s.at, f)
	rest := span{first: s.position, last: s.flow.part.last}
	source, at, err := p.next(ctx, http.MethodGet, rest, func(_ context.Context, _ mirror.Pull, r *reply) error {
		before := *s.flow
		err := s.flow.take(r, s.position)
		if err != nil {
			*s.flow = before
		}
		return err
	})
	if err != nil {
		return errBroken
	}
	s.source, s.at = source, at
	if !slices.Contains(s.bringers, at) {
		s.bringers = append(s.bringers, at)
	}
	return nil
}
