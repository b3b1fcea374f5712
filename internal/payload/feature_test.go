package payload

import (
	"slices"
	"strings"
	"testing"
)

func TestPartsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range Parts() {
		names = append(names, p.Name)
		if !isNodePath(p.Path) || !strings.HasSuffix(p.Path, `\`+p.Name) {
			t.Errorf("the path of %s is %s", p.Name, p.Path)
		}
		if p.Feature == "" {
			t.Errorf("%s has no feature", p.Name)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 16 {
		t.Errorf("%d different parts, want the contract's 16", len(names))
	}
}
