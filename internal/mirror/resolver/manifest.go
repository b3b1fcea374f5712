package resolver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// maxManifest is more than containerd takes (4 × 1048 × 1048 bytes).
const maxManifest = 4<<20 + 256<<10

// found is a manifest, or what a HEAD says about it.
type found struct {
	mediaType string
	digest    digest
	size      int64
	content   []byte // nil if only a HEAD was sent
}

// manifest finds the answer to a request for a manifest. Nothing goes to containerd before it has been checked.
func (p *pull) manifest(ctx context.Context) (give func(http.ResponseWriter) error, err error) {
	var f found
	answer, at, err := p.next(ctx, p.method, everything(), func(ctx context.Context, at mirror.Pull,
		r *reply) (err error) {
		if r.method == http.MethodHead {
			f, err = p.headed(ctx, at, r)
		} else {
			f, err = p.read(at, r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	answer.close()
	p.served = at
	switch {
	case p.target.tag != "":
		p.resolver.kinds.begin(p.target, f.digest, contract.PullByTag, true)
	case p.isFirstByDigest():
		p.resolver.kinds.begin(p.target, f.digest, contract.PullByDigest, true)
	}
	p.resolver.kinds.children(p.target, f.digest, p.kind, f.content)
	return func(w http.ResponseWriter) error { return p.giveManifest(ctx, w, f) }, nil
}

func (p *pull) giveManifest(ctx context.Context, w http.ResponseWriter, f found) error {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Length", strconv.FormatInt(f.size, 10))
	h.Set("Docker-Content-Digest", string(f.digest))
	h.Set("ETag", strconv.Quote(string(f.digest)))
	w.WriteHeader(http.StatusOK)
	if p.method == http.MethodHead {
		p.resolver.records.served(p.served.Host, 1, 0)
		return nil
	}
	p.resolver.kinds.arrived(p.target)
	if hosts := elsewhere(f.content); len(hosts) > 0 {
		logr.FromContextOrDiscard(ctx).WithName("resolver").Info("layers have addresses of their own", "image",
			p.target.name(), "hosts", hosts)
	}
	p.resolver.records.served(p.served.Host, 1, f.size)
	return write(w, f.content)
}

// headed takes a HEAD at its word, if it says everything that containerd wants to hear; else it
// reads the manifest.
func (p *pull) headed(ctx context.Context, at mirror.Pull, r *reply) (found, error) {
	f := found{mediaType: mediaType(r.header), size: r.length}
	named := r.header.Get("Docker-Content-Digest")
	d, legal := parseDigest(named)
	switch {
	case named != "" && !legal, legal && p.target.digest != "" && sameAlgorithm(d, p.target.digest) &&
		d != p.target.digest:
		return found{}, faultf(ReasonWrongContent, "it has another digest")
	case p.target.digest != "":
		f.digest = p.target.digest
	default:
		f.digest = d
	}
	if known := p.resolver.kinds.size(p.target); known > 0 && f.size >= 0 && f.size != known {
		return found{}, faultf(ReasonWrongContent, "it has %d bytes instead of %d", f.size, known)
	}
	if f.digest != "" && f.size > 0 && f.size <= maxManifest && f.mediaType != "" {
		return f, nil
	}
	r.close()
	full, err := p.state.ask(ctx, p.question(http.MethodGet, at, everything(), p.resolver.options.FirstByte))
	if err != nil {
		return found{}, err
	}
	defer full.close()
	return p.read(at, full)
}

// sameAlgorithm says whether two digests are of one algorithm.
func sameAlgorithm(a, b digest) bool {
	first, _, _ := strings.Cut(string(a), ":")
	second, _, _ := strings.Cut(string(b), ":")
	return first == second
}

// read reads a manifest and checks it.
func (p *pull) read(at mirror.Pull, r *reply) (found, error) {
	content, err := readWhole(r, maxManifest)
	if err != nil {
		return found{}, err
	}
	want := p.target.digest
	if want == "" {
		// A tag's digest is what the place says it is, if the content agrees.
		if want, _ = parseDigest(r.header.Get("Docker-Content-Digest")); want == "" {
			want = of(content)
		}
	}
	h := want.hash()
	_, _ = h.Write(content)
	if !want.isSum(h) {
		p.resolver.mismatches.blame(want, at)
		return found{}, faultf(ReasonWrongContent, "the digest is another")
	}
	f := found{mediaType: mediaType(r.header), digest: want, size: int64(len(content)), content: content}
	if f.mediaType == "" {
		f.mediaType = declared(content)
	}
	if f.mediaType == "" {
		return found{}, faultf(ReasonWrongContent, "it is no manifest")
	}
	return f, nil
}

// readWhole reads a body of a bounded size to its end.
func readWhole(r *reply, limit int64) ([]byte, error) {
	if r.length > limit {
		return nil, faultf(ReasonWrongContent, "it has more than %d bytes", limit)
	}
	// as much as it will be: growing takes time and memory
	content := bytes.NewBuffer(make([]byte, 0, max(r.length, 0)+bytes.MinRead))
	_, err := content.ReadFrom(io.LimitReader(r.body, limit+1))
	var f *fault
	switch {
	case errors.As(err, &f):
		return nil, f
	case err != nil:
		return nil, faultf(ReasonBrokenOff, "connection broken off")
	case int64(content.Len()) > limit:
		return nil, faultf(ReasonWrongContent, "it has more than %d bytes", limit)
	}
	return content.Bytes(), nil
}

// mediaType is what a header says, unless that says nothing about manifests.
func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil, t == "application/octet-stream", t == "application/json", strings.HasPrefix(t, "text/"):
		return ""
	}
	return t
}

// declared is what a manifest says about itself. An OCI manifest need not.
func declared(content []byte) string {
	var all descriptors
	if json.Unmarshal(content, &all) != nil {
		return ""
	}
	switch t, _, err := mime.ParseMediaType(all.MediaType); {
	case err == nil && strings.HasPrefix(t, "application/"):
		return t
	case len(all.Manifests) > 0:
		return "application/vnd.oci.image.index.v1+json"
	case all.Config.Digest != "":
		return "application/vnd.oci.image.manifest.v1+json"
	}
	return ""
}
