package payload

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/windows-nodes/wmco/internal/contract"
)

// samples returns blobs that differ in how they are packed: one compresses well, one doesn't compress, one is empty,
// and one is larger than all buffers.
func samples() []Blob {
	noise := make([]byte, 300<<10)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	return []Blob{
		blobOf([]byte("MZ small")),
		blobOf(noise),
		blobOf(nil),
		blobOf(bytes.Repeat([]byte("all the same "), 100_000)),
	}
}

func packed(tb testing.TB, blobs []Blob) []byte {
	tb.Helper()
	var stream bytes.Buffer
	if err := Pack(&stream, blobs); err != nil {
		tb.Fatal(err)
	}
	return stream.Bytes()
}

// crafted returns a stream with the tar entries that the function build writes, as a hostile sender could.
func crafted(tb testing.TB, build func(w *tar.Writer)) []byte {
	tb.Helper()
	var stream bytes.Buffer
	z, err := zstd.NewWriter(&stream)
	if err != nil {
		tb.Fatal(err)
	}
	w := tar.NewWriter(z)
	build(w)
	// Don't close the tar archive: its end is missing, and its last entry may be shorter than its header says.
	if err = z.Close(); err != nil {
		tb.Fatal(err)
	}
	return stream.Bytes()
}

func entry(tb testing.TB, w *tar.Writer, name string, content []byte) {
	tb.Helper()
	if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		tb.Fatal(err)
	}
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	blobs := samples()
	whole := packed(t, blobs)
	first := blobs[0]
	content := []byte("MZ small")
	cases := map[string]struct {
		stream  []byte
		want    []contract.Blob
		stored  int
		problem contract.Reason
	}{
		"a whole stream gives every blob": {whole, wanted(blobs), 4, ""},
		"only what is wanted is stored":   {whole, wanted(blobs[1:3]), 2, ""},
		"a blob wanted twice is stored once": {packed(t, blobs[:1]), wanted([]Blob{first, first}), 1,
			""},
		"nothing wanted needs no stream": {nil, nil, 0, ""},
		"an empty stream is incomplete": {nil, wanted(blobs), 0,
			contract.ReasonPayloadIncomplete},
		"a stream that lacks a blob is incomplete": {packed(t, blobs[:3]), wanted(blobs), 3,
			contract.ReasonPayloadIncomplete},
		"a stream cut in its last blob keeps the others": {whole[:len(whole)-100], wanted(blobs), 3,
			contract.ReasonPayloadIncomplete},
		"a stream cut early keeps what came whole": {whole[:200<<10], wanted(blobs), 1,
			contract.ReasonPayloadIncomplete},
		"what is no zstd is corrupt": {[]byte("this is not a compressed stream"),
			wanted(blobs), 0, contract.ReasonPayloadCorrupt},
		"what is no tar is corrupt": {zstdOf(t, bytes.Repeat([]byte("x"), 5000)),
			wanted(blobs), 0, contract.ReasonPayloadCorrupt},
		"a flipped bit costs only the blob that it hit": {flipped(whole, 250<<10), wanted(blobs), 2,
			contract.ReasonPayloadCorrupt},
		"garbage after the last wanted blob does no harm": {append(bytes.Clone(whole), "garbage"...),
			wanted(blobs), 4, ""},
		"a frame with a huge window is corrupt": {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0, 0, 0,
			0}, wanted(blobs), 0, contract.ReasonPayloadCorrupt},
		"a blob with other content of its size is corrupt": {crafted(t,
			func(w *tar.Writer) { entry(t, w, first.Digest, []byte("MZ smalL")) }), wanted(blobs[:1]), 0,
			contract.ReasonPayloadCorrupt},
		"a blob with another size is corrupt": {crafted(t,
			func(w *tar.Writer) { entry(t, w, first.Digest, append(content, 'x')) }), wanted(blobs[:1]), 0,
			contract.ReasonPayloadCorrupt},
		"a bad blob does not hurt the next one": {crafted(t,
			func(w *tar.Writer) { entry(t, w, blobs[2].Digest, content); entry(t, w, first.Digest, content) }),
			wanted([]Blob{blobs[2], first}), 1, contract.ReasonPayloadCorrupt},
		"a bad blob followed by the right one is fine": {crafted(t,
			func(w *tar.Writer) { entry(t, w, first.Digest, []byte("MZ smalL")); entry(t, w, first.Digest, content) }),
			wanted(blobs[:1]), 1, ""},
		"a path in a name leads nowhere": {crafted(t,
			func(w *tar.Writer) { entry(t, w, "../../"+first.Digest, content) }), wanted(blobs[:1]), 0,
			contract.ReasonPayloadIncomplete},
		"a link named like a blob is not followed": {crafted(t,
			func(w *tar.Writer) { link(t, w, first.Digest) }), wanted(blobs[:1]), 0, contract.ReasonPayloadIncomplete},
		"a flood of entries that nobody asked for is cut short": {crafted(t, func(w *tar.Writer) { flood(t, w) }),
			wanted(blobs[:1]), 0, contract.ReasonPayloadCorrupt},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A reader that returns one byte at a time would take too long. A reader that returns half of each read,
			// and a reader that returns data together with EOF, find the usual mistakes.
			for _, reader := range []io.Reader{bytes.NewReader(c.stream), iotest.HalfReader(bytes.NewReader(c.stream)),
				iotest.DataErrReader(bytes.NewReader(c.stream))} {
				sink := newMemorySink()
				err := Unpack(reader, c.want, sink.put)
				if missing := sink.missing(t, c.want); len(sink.kept) != c.stored || (len(missing) > 0) != (err != nil) {
					t.Errorf("stored %d blobs, want %d, with %d missing (%v)", len(sink.kept), c.stored, len(missing), err)
				}
				problem, found := contract.AsProblem(err)
				if (err != nil) != (c.problem != "") || found && problem.Reason != c.problem {
					t.Errorf("returned %v, want reason %q", err, c.problem)
				}
			}
		})
	}
}

func zstdOf(tb testing.TB, content []byte) []byte {
	tb.Helper()
	var stream bytes.Buffer
	z, err := zstd.NewWriter(&stream)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err = z.Write(content); err != nil {
		tb.Fatal(err)
	}
	if err = z.Close(); err != nil {
		tb.Fatal(err)
	}
	return stream.Bytes()
}

func flipped(stream []byte, at int) []byte {
	stream = bytes.Clone(stream)
	stream[at] ^= 0x10
	return stream
}

func link(tb testing.TB, w *tar.Writer, name string) {
	tb.Helper()
	if err := w.WriteHeader(&tar.Header{Name: name, Linkname: `C:\Windows\System32\cmd.exe`,
		Typeflag: tar.TypeSymlink}); err != nil {
		tb.Fatal(err)
	}
}

func flood(tb testing.TB, w *tar.Writer) {
	tb.Helper()
	for range maxUnwantedEntries + 1 {
		entry(tb, w, strings.Repeat("f", 64), []byte("f"))
	}
}

// A small stream may unpack to gigabytes of zeros. Unpack must stop early and must not need much memory.
func TestUnpackIsBoundedInWorkAndMemory(t *testing.T) {
	first := blobOf([]byte("MZ small"))
	bomb := crafted(t, func(w *tar.Writer) {
		if err := w.WriteHeader(&tar.Header{Name: "bomb", Size: 4 << 30, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		zeros := make([]byte, 1<<20)
		for range 1200 {
			if _, err := w.Write(zeros); err != nil {
				t.Fatal(err)
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := Unpack(bytes.NewReader(bomb), wanted([]Blob{first}), newMemorySink().put)
	runtime.ReadMemStats(&after)
	problem, found := contract.AsProblem(err)
	if !found || problem.Reason != contract.ReasonPayloadCorrupt {
		t.Errorf("returned %v, want PayloadCorrupt", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("allocated %d MiB for a stream of %d KiB", used>>20, len(bomb)>>10)
	}
}

func TestUnpackPassesOnWhatIsNotTheStreamsFault(t *testing.T) {
	t.Parallel()
	sad := errors.New("the disk is sad")
	blobs := samples()
	cases := map[string]struct {
		sink   memorySink
		reader func(io.Reader) io.Reader
	}{
		"a sink that can't create":    {sink: memorySink{createErr: sad}},
		"a sink that can't write":     {sink: memorySink{writeErr: sad}},
		"a sink that can't commit":    {sink: memorySink{commitErr: sad}},
		"a source that can't be read": {reader: func(io.Reader) io.Reader { return iotest.ErrReader(sad) }},
		"a source that breaks in between": {
			reader: func(r io.Reader) io.Reader {
				return io.MultiReader(io.LimitReader(r, 1000),
					iotest.ErrReader(sad))
			}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.sink.kept = map[string][]byte{}
			var r io.Reader = bytes.NewReader(packed(t, blobs))
			if c.reader != nil {
				r = c.reader(r)
			}
			err := Unpack(r, wanted(blobs), c.sink.put)
			c.sink.missing(t, wanted(blobs))
			if !errors.Is(err, sad) {
				t.Errorf("returned %v, want the error of the sink or source", err)
			}
		})
	}
}

// The sender sends the missing blobs again in a second stream.
func TestUnpackResumesWithWhatIsMissing(t *testing.T) {
	t.Parallel()
	blobs, sink := samples(), newMemorySink()
	whole := packed(t, blobs)
	err := Unpack(bytes.NewReader(whole[:200<<10]), wanted(blobs), sink.put)
	missing := sink.missing(t, wanted(blobs))
	if err == nil || len(missing) != 3 {
		t.Fatalf("a truncated stream returned %v with %d missing", err, len(missing))
	}
	var rest []Blob
	for _, m := range missing {
		for _, b := range blobs {
			if b.Digest == m.Digest {
				rest = append(rest, b)
			}
		}
	}
	err = Unpack(bytes.NewReader(packed(t, rest)), missing, sink.put)
	if err != nil || len(sink.kept) != 4 {
		t.Errorf("the second stream returned %v with %d kept", err, len(sink.kept))
	}
}

func TestPackRefusesBlobsThatAreNotWhatTheySay(t *testing.T) {
	t.Parallel()
	short, long, nameless, gone := blobOf([]byte("abc")), blobOf([]byte("abc")), blobOf([]byte("abc")),
		blobOf([]byte("abc"))
	short.Size, long.Size, nameless.Digest = 4, 2, "../evil"
	gone.Open = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	for name, b := range map[string]Blob{"shorter": short, "longer": long, "without a digest": nameless,
		"that can't be opened": gone} {
		if err := Pack(io.Discard, []Blob{b}); err == nil {
			t.Errorf("a blob %s is packed", name)
		}
	}
}

func TestPackStopsWithItsWriter(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	sad := errors.New("nobody listens")
	_ = r.CloseWithError(sad)
	if err := Pack(w, samples()); !errors.Is(err, sad) {
		t.Errorf("returned %v, want the writer's error", err)
	}
}

// FuzzUnpack unpacks random bytes. Unpack must store only wanted blobs, and must not panic.
func FuzzUnpack(f *testing.F) {
	blobs := []Blob{blobOf([]byte("MZ small")), blobOf(nil), blobOf(bytes.Repeat([]byte("ab"), 3000))}
	whole := packed(f, blobs)
	f.Add(whole, false)
	f.Add(whole[:len(whole)/2], false)
	f.Add(flipped(whole, 20), false)
	f.Add([]byte{}, false)
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, content := range [][]byte{[]byte("MZ small"), nil} {
		entry(f, w, digestOf(content), content)
	}
	f.Add(plain.Bytes(), true)
	f.Fuzz(func(t *testing.T, stream []byte, compress bool) {
		if compress {
			// Compress the bytes. Without compression, random bytes rarely get through zstd to tar.
			stream = zstdOf(t, stream)
		}
		sink := newMemorySink()
		err := Unpack(bytes.NewReader(stream), wanted(blobs), sink.put)
		if missing := sink.missing(t, wanted(blobs)); (len(missing) > 0) != (err != nil) {
			t.Errorf("%d missing with error %v", len(missing), err)
		}
		if _, found := contract.AsProblem(err); err != nil && !found {
			t.Errorf("a bad stream returned %v, which is no Problem", err)
		}
	})
}

// Hundreds of hosts may receive streams at the same time. This test counts all allocations of the process, so it can't
// run in parallel with other tests.
func TestAStreamNeedsLittleMemoryHoweverLongItIs(t *testing.T) { //nolint:paralleltest // see above
	noise := make([]byte, 16<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	blobs := []Blob{blobOf(noise)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := Pack(io.Discard, blobs); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20 {
		t.Errorf("packing a blob of %d bytes took %d bytes of memory", len(noise), took)
	}
}
