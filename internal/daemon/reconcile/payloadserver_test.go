package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
)

// payloadServer sends payload to daemons, as the operator does.
type payloadServer struct {
	mu    sync.Mutex
	blobs map[string]string
	// away makes the server refuse requests. spoiled makes it send wrong content. slow is the duration of each
	// transfer.
	away, spoiled bool
	slow          time.Duration
	// sent counts the blobs that were sent completely, by digest.
	sent map[string]int
}

func (d *payloadServer) source([]string, []byte) (payload.Source, error) { return d, nil }

// Open implements fetch.Source.
func (d *payloadServer) Open(ctx context.Context, digests []string, offset int64) (io.ReadCloser, error) {
	digest := digests[0] // an earlier release sends only one blob per request
	d.mu.Lock()
	content, known := d.blobs[digest]
	away, spoiled, slow := d.away, d.spoiled, d.slow
	d.mu.Unlock()
	if away || !known {
		return nil, errors.New("nobody answers")
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(slow):
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent[digest]++
	data := []byte(content)
	if spoiled {
		data[len(data)-1] ^= 1
	}
	return io.NopCloser(bytes.NewReader(data[offset:])), nil
}

func (d *payloadServer) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *payloadServer) count(content string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent[digestOf(content)]
}

// supplied starts a payload server with these blobs, and publishes its address.
func (r *rig) supplied(t *testing.T, contents ...string) {
	t.Helper()
	r.payloadServer = &payloadServer{blobs: map[string]string{}, sent: map[string]int{}}
	for _, content := range contents {
		r.payloadServer.blobs[digestOf(content)] = content
	}
	_, ca := newCA(t, "payload server")
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": contract.PayloadSourceConfigMap, "namespace": namespace},
		"data":     map[string]any{contract.PayloadSourceURLs: "https://10.0.0.1:9183\n", contract.PayloadSourceCA: ca},
	}}
	if err := r.api.Tracker().Create(configMaps, object, namespace); err != nil {
		t.Fatal(err)
	}
}

// bringing returns the first desired state with these programs instead of its own.
func bringing(programs map[string]string) contract.Manifest {
	m := manifest()
	for i, f := range m.Files {
		if content, ok := programs[f.Path]; ok {
			m.Files[i].Digest, m.Files[i].Size = digestOf(content), int64(len(content))
			delete(programs, f.Path)
		}
	}
	for path, content := range programs {
		m.Files = append(m.Files, contract.File{Path: path, Digest: digestOf(content), Size: int64(len(content))})
	}
	return m
}

// has reports whether the store has a complete blob with this content.
func (r *rig) has(t *testing.T, content string) bool {
	t.Helper()
	return r.read(t, contract.DirStore+`\`+digestOf(content)) == content
}
