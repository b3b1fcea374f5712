package reconcile_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// hybrid-overlay-node requests a new certificate each day, and does not remove the old ones. So the daemon removes
// them.
func TestOfTheOverlaysCertificatesTheNewestTwoStay(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		const dir = contract.DirCNIConfig + `\`
		r.write(t, dir+"ovnkube-client-current.pem", "the newest")
		r.write(t, dir+"ovnkube-client-others.txt", "kept")
		for day := range 9 {
			r.write(t, dir+fmt.Sprintf("ovnkube-client-2026-01-0%d-10-00-00.pem", 9-day), "certificate")
		}
		pass(2 * time.Hour)
		entries, err := r.Host().Files.List(contract.DirCNIConfig)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			if e.Name[0] == 'o' {
				names = append(names, e.Name)
			}
		}
		slices.Sort(names)
		if want := []string{"ovnkube-client-2026-01-08-10-00-00.pem", "ovnkube-client-2026-01-09-10-00-00.pem",
			"ovnkube-client-current.pem", "ovnkube-client-others.txt"}; !slices.Equal(names, want) {
			t.Errorf("the certificates are %v", names)
		}
	})
}

// Withdrawn data, such as a pull secret, must be removed from the host as soon as the host can't roll back to it.
func TestConfidentialPartsGoWithTheRevisionThatTakesTheirPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		for _, source := range []string{"a.example", "b.example", "c.example", "d.example"} {
			version := r.want(t, manifest(), rules(source))
			pass(30 * time.Second)
			r.expectStatus(t, version, "")
		}
		stateFile, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		var sources []string
		for _, revision := range []*state.Revision{&stateFile.Revision, stateFile.Before} {
			c, err := contract.ParseConfidential(revision.Confidential, revision.Manifest)
			if err != nil || len(c.Mirrors) == 0 {
				t.Fatalf("revision %s: %+v, %v", revision.Name, c, err)
			}
			sources = append(sources, c.Mirrors[0].Source)
		}
		if want := []string{"d.example", "c.example"}; !slices.Equal(sources, want) {
			t.Errorf("the host has the confidential parts of %v, want %v", sources, want)
		}
	})
}
