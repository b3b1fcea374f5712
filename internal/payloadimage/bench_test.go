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

// BenchmarkPull pulls a payload of 300 MB that does not compress, from a registry that keeps it on disk. It
// reports by how much the memory in use grew at most.
func BenchmarkPull(b *testing.B) {
	const each = 150 << 20
	dir := b.TempDir()
	builder, err := payload.NewBuilder(dir)
	if err != nil {
		b.Fatal(err)
	}
	for i, p := range payload.Parts() {
		size := int64(1 << 10)
		if i < 2 {
			size = each
		}
		noise := io.LimitReader(rand.NewChaCha8([32]byte{byte(i)}), size)
		if _, err = builder.Add(p.Name, "v1.37.0", "noise", noise); err != nil {
			b.Fatal(err)
		}
	}
	if _, err = builder.Finish("large"); err != nil {
		b.Fatal(err)
	}
	server, wanted := serveFromDisk(b, registry.Payload(b, dir))
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
func serveFromDisk(b *testing.B, i v1.Image) (*httptest.Server, string) {
	b.Helper()
	dir := b.TempDir()
	layers, err := i.Layers()
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			b.Fatal(err)
		}
		content, err := l.Compressed()
		if err != nil {
			b.Fatal(err)
		}
		if err = writeFile(filepath.Join(dir, digest.String()), content); err != nil {
			b.Fatal(err)
		}
	}
	manifest, err := i.RawManifest()
	if err != nil {
		b.Fatal(err)
	}
	digest, err := i.Digest()
	if err != nil {
		b.Fatal(err)
	}
	mediaType, err := i.MediaType()
	if err != nil {
		b.Fatal(err)
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
	b.Cleanup(server.Close)
	return server, fmt.Sprintf("%s/a/b@%s", strings.TrimPrefix(server.URL, "https://"), digest)
}
