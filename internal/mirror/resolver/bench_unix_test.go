//go:build unix

package resolver_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// giant is the size of a blob of 1 GiB that needs only 1 MiB of memory.
const giant = 1 << 30

// giantBlob is a registry with a giant blob, which repeats the same megabyte.
type giantBlob struct {
	block  []byte
	digest string
	// manifest is the manifest that names the blob.
	manifest []byte
}

func newGiant() *giantBlob {
	g := &giantBlob{block: noise(7, 1<<20)}
	h := sha256.New()
	for range giant / len(g.block) {
		_, _ = h.Write(g.block)
	}
	g.digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	g.manifest = fmt.Appendf(
		nil, `{"schemaVersion":2,"mediaType":%q,"layers":[{"mediaType":"l","digest":%q,"size":%d}]}`, manifestType,
		g.digest, giant)
	return g
}

func (g *giantBlob) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v2/" {
		return
	}
	if strings.Contains(r.URL.Path, "/manifests/") {
		w.Header().Set("Content-Type", manifestType)
		_, _ = w.Write(g.manifest)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(giant))
	for range giant / len(g.block) {
		if _, err := w.Write(g.block); err != nil {
			return
		}
	}
}

// BenchmarkLayer transfers 1 GiB from a registry on loopback to a client. The client hashes and writes the bytes like
// containerd, or only reads them. Direct transfers and transfers through the resolver alternate, so that the load of
// other programs affects both. Registry, resolver and client share the processors. A ratio is the throughput through
// the resolver divided by the direct throughput of the same round.
func BenchmarkLayer(b *testing.B) {
	blob := newGiant()
	for _, scheme := range []string{"https", "http"} {
		for _, client := range []string{"stores", "reads"} {
			b.Run("registry="+scheme+"/client="+client, func(b *testing.B) { benchLayer(b, blob, scheme, client) })
		}
	}
}

func benchLayer(b *testing.B, blob *giantBlob, scheme, client string) {
	b.Helper()
	direct, through := waysTo(b, blob, scheme, "a/blobs/"+blob.digest, "a/manifests/"+digestOf(blob.manifest))
	fetch := func(w way) cost { return w.fetch(b, client) }
	stop, peak := watchMemory()
	all := byTurns(b, direct, through, fetch)
	stop()
	ratios, added := spread(all, func(r round) float64 { return r.direct.took.Seconds() / r.through.took.Seconds() }),
		spread(all, round.later)
	b.ReportMetric(ratios.least, "ratio-min")
	b.ReportMetric(ratios.median, "ratio-median")
	b.ReportMetric(ratios.most, "ratio-max")
	b.ReportMetric(spread(all, func(r round) float64 { return r.direct.processors.Seconds() }).median,
		"cpu-s/GiB-direct")
	b.ReportMetric(spread(all, func(r round) float64 { return r.through.processors.Seconds() }).median,
		"cpu-s/GiB-resolver")
	b.ReportMetric(spread(all, func(r round) float64 { return giant / 1e6 / r.direct.took.Seconds() }).median,
		"MB/s-direct")
	b.ReportMetric(added.median, "ms-later-first-byte")
	b.ReportMetric(float64(peak.Load())/(1<<20), "MiB-peak-heap")
	b.ReportMetric(0, "ns/op")
}

// way is an address from which a client reads the bytes. before is called before each read.
type way struct {
	client  *http.Client
	address string
	before  func()
}

// waysTo returns the direct way to a registry and the way through a resolver. Like containerd, the client requests
// the manifest first.
func waysTo(b *testing.B, registry http.Handler, scheme, path, manifest string) (way, way) {
	b.Helper()
	server := httptest.NewUnstartedServer(registry)
	if scheme == "https" {
		server.StartTLS()
	} else {
		server.Start()
	}
	b.Cleanup(server.Close)
	c := config(b, source+" digest "+server.Listener.Addr().String()+"/m never")
	if scheme == "http" {
		c = restricted(b, contract.RegistrySources{Insecure: []string{server.Listener.Addr().String()}},
			source+" digest "+server.Listener.Addr().String()+"/m never")
	}
	g := newRig(b, calm(), c)
	of := func(path string) string { return g.url + "/v2/" + path + "?ns=" + url.QueryEscape(source) }
	named := way{client: g.client, address: of(manifest), before: func() {}}
	return way{server.Client(), server.URL + "/v2/m/" + path, func() {}}, way{g.client, of(path), func() {
		body, _, _ := named.open(b, make([]byte, 1))
		_, _ = io.Copy(io.Discard, body)
		_ = body.Close()
	}}
}

// cost is the cost of one fetch.
type cost struct {
	took, first time.Duration // to the last byte, and to the first
	processors  time.Duration
}

// round is one fetch on each way, right after each other.
type round struct{ direct, through cost }

// later returns by how many milliseconds the resolver delayed the first byte.
func (r round) later() float64 { return (r.through.first - r.direct.first).Seconds() * 1000 }

// byTurns first fetches once on each way, to open the connections. Then it fetches as often as the benchmark demands.
// The way that comes first changes from round to round.
func byTurns(b *testing.B, direct, through way, fetch func(way) cost) []round {
	b.Helper()
	fetch(direct)
	fetch(through)
	var all []round
	for b.Loop() {
		var r round
		if len(all)%2 == 0 {
			r.direct, r.through = fetch(direct), fetch(through)
		} else {
			r.through, r.direct = fetch(through), fetch(direct)
		}
		all = append(all, r)
	}
	return all
}

// extent summarizes many measurements.
type extent struct{ least, median, most float64 }

func spread(all []round, of func(round) float64) extent {
	values := make([]float64, len(all))
	for i, r := range all {
		values[i] = of(r)
	}
	slices.Sort(values)
	return extent{values[0], values[len(values)/2], values[len(values)-1]}
}

// open requests the bytes of a way, and returns when the first of them are in buffer. n is their number, and first is
// the time until they arrived.
func (w way) open(b *testing.B, buffer []byte) (body io.ReadCloser, n int, first time.Duration) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, w.address, nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set(mirror.TokenHeader, mirror.Authorization(token))
	began := time.Now()
	response, err := w.client.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	n, err = io.ReadAtLeast(response.Body, buffer, 1)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatal(response.Status, err)
	}
	return response.Body, n, time.Since(began)
}

// fetch reads a giant blob.
func (w way) fetch(b *testing.B, kind string) cost {
	b.Helper()
	sink, done := sinkOf(b, kind)
	defer done()
	buffer := make([]byte, 1<<20)
	w.before()
	used, began := processorTime(b), time.Now()
	body, n, first := w.open(b, buffer)
	defer body.Close()
	total := int64(0)
	for err := error(nil); err == nil; n = 0 { // full buffers, as containerd writes them
		var more int
		more, err = io.ReadFull(body, buffer[n:])
		_, _ = sink.Write(buffer[:n+more])
		total += int64(n + more)
	}
	c := cost{took: time.Since(began), first: first, processors: processorTime(b) - used}
	if total != giant {
		b.Fatal(total)
	}
	return c
}

// processorTime returns the processor time of this process, in all of its threads and in the kernel.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// sinkOf returns the writer to which a kind of client writes its bytes.
func sinkOf(b *testing.B, client string) (io.Writer, func()) {
	b.Helper()
	if client == "reads" {
		return io.Discard, func() {}
	}
	file, err := os.Create(filepath.Join(b.TempDir(), "layer"))
	if err != nil {
		b.Fatal(err)
	}
	return io.MultiWriter(file, sha256.New()), func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
}

// watchMemory records the largest heap size until it is stopped.
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

// BenchmarkFirstByte measures how much the resolver delays the first byte. The resolver checks a manifest or a small
// blob completely before it passes them on. It passes a layer on at once.
func BenchmarkFirstByte(b *testing.B) {
	for _, answer := range []struct {
		name string
		size int
	}{{"manifest", 1000}, {"blob", 1 << 20}, {"layer", 1<<20 + 1}} {
		b.Run("answer="+answer.name, func(b *testing.B) {
			m := newImage(1, answer.size)
			path, manifest := "a/blobs/"+digestOf(m.layer), "a/manifests/"+digestOf(m.manifest)
			if answer.name == "manifest" {
				path = "a/manifests/" + digestOf(m.index)
			}
			direct, through := waysTo(b, newUpstream(b, m), "https", path, manifest)
			all := byTurns(b, direct, through, func(w way) cost {
				w.before()
				body, _, first := w.open(b, make([]byte, 1))
				defer body.Close()
				_, _ = io.Copy(io.Discard, body)
				return cost{first: first}
			})
			b.ReportMetric(spread(all, func(r round) float64 { return r.direct.first.Seconds() * 1000 }).median,
				"ms-direct")
			b.ReportMetric(spread(all, round.later).median, "ms-later")
			b.ReportMetric(0, "ns/op")
		})
	}
}
