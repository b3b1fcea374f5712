package resolver

import (
	"net/url"
	"strings"
	"testing"

	godigest "github.com/opencontainers/go-digest"

	"github.com/windows-nodes/wmco/internal/mirror"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	known := godigest.Digest("sha256:" + strings.Repeat("0f", 32))
	long := godigest.Digest("sha512:" + strings.Repeat("0f", 64))
	for text, want := range map[string]target{
		"/v2/":                           {endpoint: ping},
		"/v2/a/manifests/latest?ns=q.io": {manifests, mirror.At("q.io", "a"), "latest", ""},
		"/v2/a/b__c/d.e-f---g/manifests/V1._-?ns=q.io:5000": {manifests,
			mirror.At("q.io:5000", "a/b__c/d.e-f---g"), "V1._-", ""},
		"/v2/a/blobs/" + string(known) + "?ns=[::1]:80": {blobs, mirror.At("[::1]:80", "a"), "", known},
		"/v2/a/blobs/" + string(long) + "?ns=localhost": {blobs, mirror.At("localhost", "a"), "", long},
		"/v2/blobs/manifests/blobs/" + string(known) + "?ns=1.2.3.4": {blobs,
			mirror.At("1.2.3.4", "blobs/manifests"), "", known},
		"/v2/manifests/manifests/manifests?ns=[2001:db8::1]": {manifests,
			mirror.At("[2001:db8::1]", "manifests"), "manifests", ""},
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseTarget(u); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// FuzzParseTarget searches for a request that the resolver accepts, but that a registry would interpret differently.
func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"/v2/", "/v2/a/manifests/latest?ns=q.io",
		"/v2/a/b/blobs/sha256:" + strings.Repeat("a", 64) + "?ns=[::1]:5000", "/v2/%2e%2e/manifests/x?ns=a.b",
		"/v2/a//manifests/x?ns=a:1", "/v2/a/manifests/sha256:?ns=-", "/v2/a/manifests/..?ns=a&ns=b",
		"/v2/a_b/manifests/a?ns=%00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.ParseRequestURI(text)
		if err != nil {
			return
		}
		got, err := parseTarget(u)
		if err != nil || got.endpoint == ping {
			return
		}
		if (got.tag == "") == (got.digest == "") {
			t.Fatalf("%+v must have either a tag or a digest", got)
		}
		// The request to the registry must have the same meaning.
		path := got.path(got.image.Path)
		again, err := url.ParseRequestURI(path + "?ns=" + got.image.Host)
		if err != nil || again.Path != path || again.RawPath != "" || strings.Contains(path, "..") ||
			strings.Contains(path, "//") {
			t.Fatalf("%q became %q (%v)", text, path, err)
		}
		if same, err := parseTarget(again); err != nil || same != got {
			t.Fatalf("%q became %+v, and after a second time %+v (%v)", text, got, same, err)
		}
		if to := (&url.URL{Scheme: "https", Host: got.image.Host}); to.Hostname() == "" ||
			strings.ContainsAny(got.image.Host, "/@?#% ") {
			t.Fatalf("%q has the registry %q", text, got.image.Host)
		}
	})
}

// FuzzContentRange searches for an inconsistent range that is accepted.
func FuzzContentRange(f *testing.F) {
	for _, seed := range []string{"bytes 0-1/2", "bytes 5-9/*", "bytes 9-5/10", "bytes */10",
		"bytes 0-18446744073709551615/1", "bytes -1-2/3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if offset, size, ok := parseContentRange(text); ok && (offset < 0 || size <= offset) {
			t.Errorf("%q: %d of %d", text, offset, size)
		}
		if offset, ranged := parseRange(text); offset < 0 || !ranged && offset != 0 {
			t.Errorf("%q: %d", text, offset)
		}
	})
}
