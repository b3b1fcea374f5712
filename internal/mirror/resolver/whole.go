package resolver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	godigest "github.com/opencontainers/go-digest"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// maxManifest is the maximum size of a manifest. It is more than containerd's own limit (4 × 1048 × 1048 bytes).
const maxManifest = 4<<20 + 256<<10

const octets = "application/octet-stream"

// `whole` is a manifest, or the answer to a HEAD request. It is checked before any part of it is sent to containerd.
type whole struct {
	mediaType string
	digest    godigest.Digest
	size      int64
	content   []byte // nil for a HEAD request
}

// findWhole asks the sources for a manifest, or for the answer to a HEAD request.
func (p *pull) findWhole(ctx context.Context) (one whole, err error) {
	answer, at, err := p.ask(ctx, 0, func(ctx context.Context, at mirror.Location,
		r *reply) error {
		if r.method != http.MethodHead {
			one, err = p.read(r)
			return err
		}
		if one, err = p.headed(r); err != nil || one.isComplete() {
			return err
		}
		r.close()
		full, err := p.question(http.MethodGet, at, 0).ask(ctx, p.limit())
		if err != nil {
			return err
		}
		defer full.close()
		one, err = p.read(full)
		return err
	})
	if err != nil {
		return whole{}, err
	}
	answer.close()
	p.served = at
	p.resolver.began(p.target, p.method)
	return one, nil
}

func (p *pull) giveWhole(ctx context.Context, w http.ResponseWriter, one whole) error {
	h := w.Header()
	h.Set("Content-Type", one.mediaType)
	h.Set("Content-Length", strconv.FormatInt(one.size, 10))
	h.Set("Docker-Content-Digest", one.digest.String())
	h.Set("ETag", strconv.Quote(one.digest.String()))
	w.WriteHeader(http.StatusOK)
	if p.method == http.MethodHead {
		p.resolver.options.Metrics.serve(p.served.Host, 1, 0)
		return nil
	}
	if hosts := elsewhere(one.content); len(hosts) > 0 {
		logr.FromContextOrDiscard(ctx).WithName("resolver").Info("the manifest names other addresses for layers",
			"image", p.target.name(), "hosts", hosts)
	}
	p.resolver.options.Metrics.serve(p.served.Host, 1, one.size)
	p.begun = true
	return write(w, one.content)
}

// isComplete reports whether the answer to a HEAD request has all values that containerd needs.
func (o whole) isComplete() bool {
	return o.mediaType == octets || o.digest != "" && o.mediaType != "" && o.size > 0 && o.size <= maxManifest
}

// `headed` returns the values of an answer to HEAD, or a fault if a value contradicts the digest or a blob has no size.
func (p *pull) headed(r *reply) (whole, error) {
	named := r.header.Get("Docker-Content-Digest")
	d, err := godigest.Parse(named)
	want := p.target.digest
	if named != "" && err != nil || err == nil && want != "" && d.Algorithm() == want.Algorithm() && d != want {
		return whole{}, faultf(ReasonWrongContent, "it has another digest")
	}
	if want == "" {
		want = d
	}
	one := whole{mediaType: mediaType(r.header), digest: want, size: r.length}
	if p.target.endpoint == blobs {
		one.mediaType = octets
		if one.size < 0 {
			return whole{}, faultf(ReasonFailing, "it does not say how large it is")
		}
	}
	return one, nil
}

// read returns a manifest and checks its digest. For a tag, the digest must match the source's header, if there is one.
func (p *pull) read(r *reply) (whole, error) {
	content, err := readWhole(r, maxManifest)
	if err != nil {
		return whole{}, err
	}
	want := p.target.digest
	if want == "" {
		if want, err = godigest.Parse(r.header.Get("Docker-Content-Digest")); err != nil {
			want = godigest.FromBytes(content)
		}
	}
	if !matches(want, content) {
		return whole{}, faultf(ReasonWrongContent, "the digest is another")
	}
	one := whole{mediaType: mediaType(r.header), digest: want, size: int64(len(content)), content: content}
	if one.mediaType == "" {
		one.mediaType = declared(content)
	}
	if one.mediaType == "" {
		return whole{}, faultf(ReasonWrongContent, "it is no manifest")
	}
	return one, nil
}

func matches(d godigest.Digest, content []byte) bool { return d.Algorithm().FromBytes(content) == d }

// readWhole reads the body of an answer to its end. If the body is longer than limit, readWhole returns a fault.
func readWhole(r *reply, limit int64) ([]byte, error) {
	content := &bytes.Buffer{}
	if r.length <= limit {
		content.Grow(int(max(r.length, 0)) + bytes.MinRead)
		if _, err := content.ReadFrom(io.LimitReader(r.body, limit+1)); err != nil {
			return nil, err
		}
	}
	if r.length > limit || int64(content.Len()) > limit {
		return nil, faultf(ReasonWrongContent, "it has more than %d bytes", limit)
	}
	return content.Bytes(), nil
}

// mediaType returns the media type in a header, or an empty string if it isn't specific to manifests.
func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || t == octets || t == "application/json" || strings.HasPrefix(t, "text/") {
		return ""
	}
	return t
}

type manifestFields struct {
	MediaType string `json:"mediaType"`
	Config    struct {
		Digest string `json:"digest"`
	} `json:"config"`
	Layers []struct {
		URLs []string `json:"urls"`
	} `json:"layers"`
	Manifests []json.RawMessage `json:"manifests"`
}

// `declared` returns the media type that a manifest declares or implies, or "" if content is no manifest.
func declared(content []byte) string {
	var fields manifestFields
	if json.Unmarshal(content, &fields) != nil {
		return ""
	}
	switch t, _, err := mime.ParseMediaType(fields.MediaType); {
	case err == nil && strings.HasPrefix(t, "application/"):
		return t
	case len(fields.Manifests) > 0:
		return "application/vnd.oci.image.index.v1+json"
	case fields.Config.Digest != "":
		return "application/vnd.oci.image.manifest.v1+json"
	}
	return ""
}

// `elsewhere` lists up to eight hosts from the layer URLs of a manifest. containerd tries these hosts first, regardless
// of the rules.
func elsewhere(content []byte) (hosts []string) {
	var fields manifestFields
	if json.Unmarshal(content, &fields) != nil {
		return nil // containerd reports an invalid manifest
	}
	for _, layer := range fields.Layers {
		for _, text := range layer.URLs {
			u, err := url.Parse(text)
			if err == nil && u.Host != "" && len(hosts) < 8 && !slices.Contains(hosts, u.Host) {
				hosts = append(hosts, u.Host)
			}
		}
	}
	return hosts
}
