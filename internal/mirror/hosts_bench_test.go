package mirror

import (
	"fmt"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

// BenchmarkHostsFiles is what a change of anything costs a node whose cluster mirrors this many
// registries.
func BenchmarkHostsFiles(b *testing.B) {
	for _, sources := range []int{100, 1000} {
		b.Run(fmt.Sprint(sources), func(b *testing.B) {
			var all []contract.MirrorRule
			for i := range sources {
				all = append(all, contract.MirrorRule{Source: fmt.Sprintf("r%d.example.com", i),
					Kind: contract.PullKind([]string{"digest", "tag"}[i%2]), NeverContactSource: i%3 == 0,
					Mirrors: []string{fmt.Sprintf("m.example.net:5000/r%d", i), "n.example.net/x"}})
			}
			for b.Loop() {
				rules, err := NewRules(all)
				if err != nil {
					b.Fatal(err)
				}
				if files := HostsFiles(rules, Endpoint{URL: "http://127.0.0.1:9184", Token: "t"}); len(files) < sources {
					b.Fatal(len(files))
				}
			}
		})
	}
}
