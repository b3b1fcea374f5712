package mirror_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"github.com/windows-nodes/wmco/internal/mirror"
)

func TestContainerdAsksTheResolverAloneOrNobody(t *testing.T) {
	t.Parallel()
	const url, token = "http://127.0.0.1:9184", "0123456789abcdef"
	for name, c := range map[string]struct {
		url, token, server string
		header             any
	}{
		"the resolver": {url, token, url,
			map[string]any{"Authorization": []any{"Basic Y29udGFpbmVyZDowMTIzNDU2Nzg5YWJjZGVm"}}},
		"another program has the port": {"", "", "https://another-program-has-the-port-of-the-mirror-resolver.invalid.",
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got map[string]any
			if err := toml.Unmarshal([]byte(mirror.HostsFile(c.url, c.token)), &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"server": c.server, "capabilities": []any{"pull", "resolve"}, "dial_timeout": "1s"}
			if c.header != nil {
				want["header"] = c.header
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
