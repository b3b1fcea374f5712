package reconcile_test

import (
	"slices"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// Data that is no longer published, such as a pull secret, must be removed from the host as soon as the host can no
// longer roll back to a revision with this data.
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
