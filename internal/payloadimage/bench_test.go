package payloadimage

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/registry"
)

// large is a payload that does not compress, with two parts of this size.
func large(tb testing.TB, each int64) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	builder, err := payload.NewBuilder(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for i, p := range payload.Parts() {
		size := int64(1 << 10)
		if i < 2 {
			size = each
		}
		noise := io.LimitReader(rand.NewChaCha8([32]byte{byte(i)}), size)
		if _, err = builder.Add(p.Name, "v1.37.0", "noise", noise); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err = builder.Finish("large"); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// It is not parallel, so that nobody else's memory is in the figure.
func TestA61_APullTakesLittleMemoryHoweverLargeThePayloadIs(t *testing.T) {
	const each, most = 24 << 20, 16 << 20
	server, wanted := serveFromDisk(t, registry.Payload(t, large(t, each)))
	s, err := New(t.Context(), Options{Dir: t.TempDir(), Embedded: opened(t, standins(t, "v1.36.0"))})
	if err != nil {
		t.Fatal(err)
	}
	peak := watchMemory(func() { err = s.pull(t.Context(), wanted, Access{CA: pemOf(server)}) })
	if err != nil {
		t.Fatal(err)
	}
	if peak > most {
		t.Errorf("the memory in use grew by %d bytes while files of %d bytes were pulled", peak, each)
	}
}

// BenchmarkPull pulls a payload of 300 MB that does not compress, from a registry that keeps it on disk. It
// reports by how much the memory in use grew at most.
func BenchmarkPull(b *testing.B) {
	server, wanted := serveFromDisk(b, registry.Payload(b, large(b, 150<<20)))
	embedded := opened(b, standins(b, "v1.36.0"))
	var most uint64
	b.ResetTimer()
	for b.Loop() {
		s, err := New(b.Context(), Options{Dir: b.TempDir(), Embedded: embedded})
		if err != nil {
			b.Fatal(err)
		}
		peak := watchMemory(func() { err = s.pull(b.Context(), wanted, Access{CA: pemOf(server)}) })
		if err != nil {
			b.Fatal(err)
		}
		most = max(most, peak)
	}
	b.ReportMetric(float64(most)/(1<<20), "MiB-peak")
}

// watchMemory says by how much the memory in use grew at most while something was done.
func watchMemory(do func()) uint64 {
	used := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	runtime.GC()
	before := used()
	var most atomic.Uint64
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			most.Store(max(most.Load(), used()))
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	do()
	cancel()
	<-ended
	return most.Load() - min(before, most.Load())
}

// serveFromDisk is a registry for one image.
func serveFromDisk(tb testing.TB, i v1.Image) (*httptest.Server, string) {
	tb.Helper()
	dir := tb.TempDir()
	layers, err := i.Layers()
	if err != nil {
		tb.Fatal(err)
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			tb.Fatal(err)
		}
		content, err := l.Compressed()
		if err != nil {
			tb.Fatal(err)
		}
		if err = writeFile(filepath.Join(dir, digest.String()), content); err != nil {
			tb.Fatal(err)
		}
	}
	manifest, err := i.RawManifest()
	if err != nil {
		tb.Fatal(err)
	}
	digest, err := i.Digest()
	if err != nil {
		tb.Fatal(err)
	}
	mediaType, err := i.MediaType()
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", string(mediaType))
			_, _ = w.Write(manifest)
			return
		}
		if f, err := os.Open(filepath.Join(dir, path.Base(r.URL.Path))); err == nil && strings.Contains(r.URL.Path, "/blobs/") {
			defer f.Close()
			_, _ = io.Copy(w, f)
		}
	}))
	tb.Cleanup(server.Close)
	return server, fmt.Sprintf("%s/a/b@%s", strings.TrimPrefix(server.URL, "https://"), digest)
}
