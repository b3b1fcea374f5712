package contract

import "testing"

func TestNounsAndVerbsAgreeWithTheirNumber(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"1 node":         Count(1, "node"),
		"0 nodes":        Count(0, "node"),
		"2 entries":      Count(2, "entry"),
		"1 entry is":     CountAre(1, "entry"),
		"3 settings are": CountAre(3, "setting"),
		"a, b":           Few([]string{"a", "b"}, 2, ", "),
		"a; and 2 more":  Few([]string{"a", "b", "c"}, 1, "; "),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
