package sim

import (
	"io"
	"unique"
)

// chunkSize is the size of a chunk in bytes. With this size, a payload of 300 MB has only a few thousand chunks, and
// writing a part of a chunk is still cheap.
const chunkSize = 128 << 10

// content holds the bytes of a file in chunks. A chunk is sealed when it is complete or when its file is closed. All
// machines in the process share the memory of equal sealed chunks. The garbage collector frees this memory when no file
// uses it anymore. So 500 machines with the same payload need as much memory for it as one machine.
type content struct {
	size   int64
	chunks []chunk
}

// chunk is a part of a file. It is sealed, is being written, or consists of zeros. If dirty is not nil, it is being
// written. If it is shorter than the part of the file, zeros follow.
type chunk struct {
	sealed  unique.Handle[string]
	dirty   []byte
	written int
}

func (c *chunk) bytes() int {
	switch {
	case c.dirty != nil:
		return len(c.dirty)
	case c.sealed != unique.Handle[string]{}:
		return len(c.sealed.Value())
	}
	return 0
}

func (c *chunk) copyTo(p []byte, from int) {
	n := 0
	switch {
	case c.dirty != nil && from < len(c.dirty):
		n = copy(p, c.dirty[from:])
	case c.dirty == nil && from < c.bytes():
		n = copy(p, c.sealed.Value()[from:])
	}
	clear(p[n:])
}

func (c *chunk) open() {
	if c.dirty == nil {
		c.written = 0
		c.dirty = []byte{}
		if c.sealed != (unique.Handle[string]{}) {
			c.dirty = []byte(c.sealed.Value())
			c.sealed = unique.Handle[string]{}
		}
	}
}

func (c *chunk) seal() {
	if c.dirty != nil {
		c.sealed = unique.Make(string(c.dirty))
		c.dirty, c.written = nil, 0
	}
}

func (c *chunk) write(p []byte, at int) {
	c.open()
	if need := at + len(p); need > len(c.dirty) {
		if need > cap(c.dirty) {
			grown := make([]byte, len(c.dirty), min(chunkSize, max(need, 2*cap(c.dirty))))
			copy(grown, c.dirty)
			c.dirty = grown
		}
		old := len(c.dirty)
		c.dirty = c.dirty[:need]
		clear(c.dirty[old:])
	}
	copy(c.dirty[at:], p)
	if c.written += len(p); c.written >= chunkSize {
		c.seal()
	}
}

func (c *chunk) cut(n int) {
	if c.bytes() > n {
		c.open()
		c.dirty = c.dirty[:n]
	}
}

// readAt implements io.ReaderAt.
func (c *content) readAt(p []byte, off int64) (int, error) {
	if off >= c.size {
		return 0, io.EOF
	}
	short := false
	if rest := c.size - off; int64(len(p)) > rest {
		p, short = p[:rest], true
	}
	for done := 0; done < len(p); {
		i, at := locate(off + int64(done))
		n := min(chunkSize-at, len(p)-done)
		c.chunks[i].copyTo(p[done:done+n], at)
		done += n
	}
	if short {
		return len(p), io.EOF
	}
	return len(p), nil
}

// writeAt overwrites bytes and extends the content if necessary. The caller must first check the free space.
func (c *content) writeAt(p []byte, off int64) {
	if end := off + int64(len(p)); end > c.size {
		c.resize(end)
	}
	for done := 0; done < len(p); {
		i, at := locate(off + int64(done))
		n := min(chunkSize-at, len(p)-done)
		c.chunks[i].write(p[done:done+n], at)
		done += n
	}
}

// resize truncates the content or extends it with zeros.
func (c *content) resize(size int64) {
	need := int((size + chunkSize - 1) / chunkSize)
	for len(c.chunks) < need {
		c.chunks = append(c.chunks, chunk{})
	}
	clear(c.chunks[need:])
	c.chunks = c.chunks[:need]
	if size < c.size && need > 0 {
		c.chunks[need-1].cut(int(size - int64(need-1)*chunkSize))
	}
	c.size = size
}

func (c *content) seal() {
	for i := range c.chunks {
		c.chunks[i].seal()
	}
}

func locate(off int64) (index, at int) { return int(off / chunkSize), int(off % chunkSize) }
