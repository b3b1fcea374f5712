package mirror_test

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// TestNeverHoldsForEachSpelling checks Never with the spellings of hosts that registries use in redirects and
// challenges.
func TestNeverHoldsForEachSpelling(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "tag quay.io m.io never", "tag docker.io m.io never", "tag 10.1.2.3:5000 m.io never",
		"tag [fd00::1] m.io never", "tag ghcr.io/team m.io never")
	for host, want := range map[string]bool{
		"quay.io": true, "QUAY.io": true, "quay.io.": true, "quay.io:443": true, "quay.io:0443": true, "quay.io.:443": true,
		"quay.io:": true, "quay.io:8443": true, "quay.io.:08443": true, "ｑｕａｙ.io": true, "quay。io": true, "quay.iot": false,
		"docker.io": true, "registry-1.docker.io": true, "index.docker.io:443": true, "Registry-1.Docker.io.": true,
		"auth.docker.io": false, "10.1.2.3:5000": true, "10.1.2.3.:5000": true, "[::ffff:10.1.2.3]:05000": true,
		"10.1.2.3": false, "[fd00:0::1]:443": true, "ghcr.io": false, "": false, "[": false,
	} {
		if got := rules.Never(mirror.At(host, "")); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
	if !rules.Never(mirror.At("ghcr.io.:0443", "team/app")) || rules.Never(mirror.At("ghcr.io.", "teams/app")) {
		t.Error("the rule for a namespace matches the wrong repositories")
	}
}

func TestWhatIsThisMachineItself(t *testing.T) {
	t.Parallel()
	for host, is := range map[string]bool{"localhost": true, "LocalHost": true, "localhost.": true, "127.0.0.1": true,
		"127.0.0.1.": true, "127.9.9.9:5000": true, "[::1]": true, "[::ffff:127.0.0.1]": true, "10.0.0.1": false,
		"localhost.example.com": false, "": false} {
		if got := mirror.At(host, "").IsLoopback(); got != is {
			t.Errorf("%q: %t", host, got)
		}
	}
}

// TestWhereAPlaceMaySendAPull checks redirects: a registry may redirect to a content network, but not to a forbidden
// registry.
func TestWhereAPlaceMaySendAPull(t *testing.T) {
	t.Parallel()
	rules, err := rulesOf(t, "tag quay.io m.io never", "tag ghcr.io/team m.io never", "tag *.example.com m.io never",
		"tag a.example.com/open", "tag docker.io m.io never").Restrict(contract.RegistrySources{
		Blocked: []string{"bad.io", "*.microsoft.com", "cdn.m.io"}, Always: []string{"mcr.microsoft.com/pause"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from             mirror.Location
		host, repository string
		want             bool
	}{
		"a content network":          {mirror.At("m.io", "x"), "store.cloud.example", "", true},
		"itself":                     {mirror.At("m.io", "x"), "M.io:443", "x", true},
		"a source":                   {mirror.At("m.io", "x"), "quay.io", "", false},
		"a source, otherwise":        {mirror.At("m.io", "x"), "quay.io.:0443", "", false},
		"Docker Hub by its address":  {mirror.At("m.io", "x"), "registry-1.docker.io", "", false},
		"a blocked registry":         {mirror.At("m.io", "x"), "bad.io:5000", "", false},
		"a forbidden namespace":      {mirror.At("m.io", "x"), "ghcr.io", "team/app", false},
		"another namespace":          {mirror.At("m.io", "x"), "ghcr.io", "other", true},
		"its own forbidden part":     {mirror.At("ghcr.io", "other"), "ghcr.io", "team/app", false},
		"a forbidden domain":         {mirror.At("m.io", "x"), "cdn.example.com", "", false},
		"below itself, and blocked":  {mirror.At("m.io", "x"), "cdn.m.io", "", false},
		"its own part of a domain":   {mirror.At("a.example.com", "open"), "cdn.a.example.com", "", true},
		"its own host, as exception": {mirror.At("a.example.com", "open"), "a.example.com", "", true},
		"another part of the domain": {mirror.At("a.example.com", "open"), "b.example.com", "", false},
		"what every pod needs": {mirror.At("mcr.microsoft.com", "pause"),
			"eastus.data.mcr.microsoft.com", "", true},
	} {
		if got := rules.MayLead(c.from, mirror.At(c.host, c.repository)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
