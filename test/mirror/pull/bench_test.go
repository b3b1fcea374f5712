package pull_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

const giant = 1 << 30

// giantLayer is a reader of 1 GiB that repeats the same megabyte.
type giantLayer struct{ block []byte }

func (g giantLayer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

func (g giantLayer) digest() digest.Digest {
	h := sha256.New()
	for range giant / len(g.block) {
		_, _ = h.Write(g.block)
	}
	return digest.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// BenchmarkLayerIntoContainerd pulls a layer of 1 GiB from a registry on loopback with TLS, directly and through the
// resolver. containerd's fetcher writes the layer to its content store, which hashes it and syncs it to disk.
func BenchmarkLayerIntoContainerd(b *testing.B) {
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * i >> 3)
	}
	layer := giantLayer{block}
	server := httptest.NewTLSServer(layer)
	b.Cleanup(server.Close)
	name := strings.TrimPrefix(server.URL, "https://")
	wanted := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: layer.digest(), Size: giant}
	caFile := filepath.Join(b.TempDir(), "ca.pem")
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(caFile, bundle, 0o600); err != nil {
		b.Fatal(err)
	}
	ways := []struct{ name, file string }{
		{"direct", fmt.Sprintf("server = %q\nca = %q\n", server.URL, caFile)},
		{"resolver", benchResolver(b, name, string(bundle))},
	}
	for _, way := range ways {
		b.Run("way="+way.name, func(b *testing.B) {
			fetcher := benchFetcher(b, name, way.file)
			b.SetBytes(giant)
			for b.Loop() {
				b.StopTimer()
				path := b.TempDir()
				store, err := local.NewStore(path)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if _, err := remotes.FetchHandler(store, fetcher)(b.Context(), wanted); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := os.RemoveAll(path); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// benchResolver starts a resolver and returns the hosts.toml that directs containerd to it.
func benchResolver(b *testing.B, name, bundle string) string {
	b.Helper()
	r := resolver.New(resolver.Options{Token: resolverToken})
	r.Update(resolver.Config{RegistryTrust: map[string]string{name: bundle}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, listener) }()
	b.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	return mirror.HostsFile("http://"+listener.Addr().String(), resolverToken)
}

func benchFetcher(b *testing.B, name, file string) remotes.Fetcher {
	b.Helper()
	root := b.TempDir()
	writeHosts(b, root, file)
	r := docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(b.Context(),
		config.HostOptions{HostDir: config.HostDirFromRoot(root)})})
	fetcher, err := r.Fetcher(b.Context(), name+"/team/app:v1")
	if err != nil {
		b.Fatal(err)
	}
	return fetcher
}
