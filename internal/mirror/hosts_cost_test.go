package mirror

import (
	"fmt"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

// The files of a thousand sources took a second of processor time at each change. Allocations are
// counted, since they are the same on every machine.
func TestA22_TheFilesOfManySourcesCostEachTheSame(t *testing.T) { // not parallel: allocations are counted
	cost := func(sources int) float64 {
		var all []contract.MirrorRule
		for i := range sources {
			all = append(all, contract.MirrorRule{Source: fmt.Sprintf("r%d.example.com", i), Kind: contract.PullByTag,
				NeverContactSource: i%3 == 0, Mirrors: []string{fmt.Sprintf("m.example.net:5000/r%d", i)}})
		}
		return testing.AllocsPerRun(2, func() {
			rules, err := NewRules(all)
			if err != nil {
				t.Fatal(err)
			}
			if files := HostsFiles(rules, Endpoint{URL: "http://127.0.0.1:9184", Token: "t"}); len(files) < sources {
				t.Fatal(len(files))
			}
		})
	}
	few, many := cost(100), cost(1000)
	if many > 15*few {
		t.Errorf("100 sources take %.0f allocations, 1000 take %.0f", few, many)
	}
}
