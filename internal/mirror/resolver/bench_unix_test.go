//go:build unix

package resolver_test

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// giant is a blob of 1 GiB that takes 1 MiB of memory.
const giant = 1 << 30

// source of a giant blob: the same megabyte, again and again.
type giantBlob struct {
	block  []byte
	digest string
}

func newGiant() *giantBlob {
	g := &giantBlob{block: noise(7, 1<<20)}
	h := sha256.New()
	for range giant / len(g.block) {
		_, _ = h.Write(g.block)
	}
	g.digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return g
}

func (g *giantBlob) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v2/" {
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(giant))
	for range giant / len(g.block) {
		if _, err := w.Write(g.block); err != nil {
			return
		}
	}
}

// BenchmarkLayer passes 1 GiB from a registry on loopback to a client that does what containerd does (hash and write) or only reads,
// directly and through the resolver. Everything shares this machine's processors.
func BenchmarkLayer(b *testing.B) {
	blob := newGiant()
	for _, scheme := range []string{"https", "http"} {
		for _, client := range []string{"stores", "hashes", "reads"} {
			for _, way := range []string{"direct", "resolver"} {
				b.Run("registry="+scheme+"/client="+client+"/way="+way, func(b *testing.B) { benchLayer(b, blob, scheme, client, way) })
			}
		}
	}
}

func benchLayer(b *testing.B, blob *giantBlob, scheme, client, way string) {
	b.Helper()
	server := httptest.NewUnstartedServer(blob)
	if scheme == "https" {
		server.StartTLS()
	} else {
		server.Start()
	}
	defer server.Close()
	host := strings.SplitAfter(server.URL, "//")[1]
	address := server.URL + "/v2/m/a/blobs/" + blob.digest
	http1 := server.Client()
	if way == "resolver" {
		o := calm()
		if scheme == "http" {
			o.PlainLoopback = []string{host}
		}
		g := newRig(b, o, config(b, source+" digest "+host+"/m never"))
		http1, address = g.client, g.url+"/v2/a/blobs/"+blob.digest+"?ns="+url.QueryEscape(source)
	}
	b.SetBytes(giant)
	stop, peak := watchMemory()
	var first time.Duration
	cpu := processorTime(b)
	for b.Loop() {
		first += fetch(b, http1, address, client)
	}
	stop()
	b.ReportMetric((processorTime(b)-cpu).Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(first.Microseconds())/1000/float64(b.N), "ms-to-first-byte")
	b.ReportMetric(float64(peak.Load())/(1<<20), "MiB-peak-heap")
}

// fetch reads a giant blob, and says when its first byte came.
func fetch(b *testing.B, client *http.Client, address, kind string) time.Duration {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, address, nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set(mirror.TokenHeader, token)
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	buffer := make([]byte, 1<<20)
	n, err := response.Body.Read(buffer)
	first := time.Since(began)
	sink, done := sinkOf(b, kind)
	total := int64(0)
	for err == nil { // full buffers, as containerd writes
		var more int
		more, err = io.ReadFull(response.Body, buffer[n:])
		_, _ = sink.Write(buffer[:n+more])
		total += int64(n + more)
		n = 0
	}
	if total != giant {
		b.Fatal(err, total)
	}
	done()
	return first
}

// processorTime is what this process has used, in all of its threads and in the kernel.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func sinkOf(b *testing.B, kind string) (io.Writer, func()) {
	b.Helper()
	var h hash.Hash
	switch kind {
	case "reads":
		return io.Discard, func() {}
	case "hashes":
		h = sha256.New()
		return h, func() { h.Sum(nil) }
	}
	h = sha256.New()
	file, err := os.Create(filepath.Join(b.TempDir(), "layer"))
	if err != nil {
		b.Fatal(err)
	}
	return io.MultiWriter(file, h), func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
}

// watchMemory looks for the largest heap until it is stopped.
func watchMemory() (stop func(), peak *atomic.Uint64) {
	peak = &atomic.Uint64{}
	runtime.GC()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapInuse))
			}
		}
	}()
	return func() { close(done); <-ended }, peak
}

// BenchmarkFirstByte measures what the resolver adds to a small answer.
func BenchmarkFirstByte(b *testing.B) {
	m := newImage(1, 1000)
	u := newUpstream(b, m)
	g := newRig(b, calm(), config(b, source+" digest "+u.host+"/m never"))
	for name, c := range map[string]struct {
		client  *http.Client
		address string
	}{
		"way=direct":   {u.Client(), u.URL + "/v2/m/a/manifests/" + digestOf(m.index)},
		"way=resolver": {g.client, g.url + "/v2/a/manifests/" + digestOf(m.index) + "?ns=" + url.QueryEscape(source)},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, c.address, nil)
				if err != nil {
					b.Fatal(err)
				}
				request.Header.Set(mirror.TokenHeader, token)
				response, err := c.client.Do(request)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
}
