package mirror_test

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// TestNeverHoldsForEachSpelling is about hosts as registries write them, in redirects and
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
		if got := rules.Never(host, ""); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
	if !rules.Never("ghcr.io.:0443", "team/app") || rules.Never("ghcr.io.", "teams/app") {
		t.Error("a namespace has other limits")
	}
}

func TestWhichRegistriesTheClusterNames(t *testing.T) {
	t.Parallel()
	rules, err := rulesOf(t, "tag quay.io/team m.io", "tag *.example.com m.io", "tag docker.io m.io").Restrict(
		contract.RegistrySources{Allowed: []string{"ghcr.io/a/b", "*.lab.io", "n.io:5000"},
			Insecure: []string{"i.io"}})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"quay.io": true, "quay.io:443": true, "quay.io:5000": false, "a.example.com": true,
		"example.com": false, "registry-1.docker.io": true, "ghcr.io": true, "ghcr.iot": false, "a.lab.io:80": true,
		"n.io:5000": true, "n.io": false, "i.io": true, "mcr.microsoft.com": true, "m.io": false} {
		if got := rules.Names(host); got != want {
			t.Errorf("%s: %t", host, got)
		}
	}
}

// TestWhereAPlaceMaySendAPull is about redirects: to a content network, but to no registry that is
// forbidden.
func TestWhereAPlaceMaySendAPull(t *testing.T) {
	t.Parallel()
	rules, err := rulesOf(t, "tag quay.io m.io never", "tag ghcr.io/team m.io never", "tag *.example.com m.io never",
		"tag a.example.com/open", "tag docker.io m.io never").Restrict(contract.RegistrySources{
		Blocked: []string{"bad.io", "*.microsoft.com", "cdn.m.io"}, Always: []string{"mcr.microsoft.com/pause"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from             mirror.Pull
		host, repository string
		want             bool
	}{
		"a content network":          {mirror.Pull{Host: "m.io", Repository: "x"}, "store.cloud.example", "", true},
		"itself":                     {mirror.Pull{Host: "m.io", Repository: "x"}, "M.io:443", "x", true},
		"a source":                   {mirror.Pull{Host: "m.io", Repository: "x"}, "quay.io", "", false},
		"a source, otherwise":        {mirror.Pull{Host: "m.io", Repository: "x"}, "quay.io.:0443", "", false},
		"Docker Hub by its address":  {mirror.Pull{Host: "m.io", Repository: "x"}, "registry-1.docker.io", "", false},
		"a blocked registry":         {mirror.Pull{Host: "m.io", Repository: "x"}, "bad.io:5000", "", false},
		"a forbidden namespace":      {mirror.Pull{Host: "m.io", Repository: "x"}, "ghcr.io", "team/app", false},
		"another namespace":          {mirror.Pull{Host: "m.io", Repository: "x"}, "ghcr.io", "other", true},
		"its own forbidden part":     {mirror.Pull{Host: "ghcr.io", Repository: "other"}, "ghcr.io", "team/app", false},
		"a forbidden domain":         {mirror.Pull{Host: "m.io", Repository: "x"}, "cdn.example.com", "", false},
		"below itself, and blocked":  {mirror.Pull{Host: "m.io", Repository: "x"}, "cdn.m.io", "", false},
		"its own part of a domain":   {mirror.Pull{Host: "a.example.com", Repository: "open"}, "cdn.a.example.com", "", true},
		"its own host, as exception": {mirror.Pull{Host: "a.example.com", Repository: "open"}, "a.example.com", "", true},
		"another part of the domain": {mirror.Pull{Host: "a.example.com", Repository: "open"}, "b.example.com", "", false},
		"what every pod needs": {mirror.Pull{Host: "mcr.microsoft.com", Repository: "pause"},
			"eastus.data.mcr.microsoft.com", "", true},
	} {
		if got := rules.MayLead(c.from, c.host, c.repository); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
