package contract_test

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestABootIsTheSameUnderEachNameThatItWasGiven(t *testing.T) {
	t.Parallel()
	const most = "boot-4294967295-ffffffffffffffff"
	for name, c := range map[string]struct {
		stored, now string
		want        bool
	}{
		"one name":                              {"boot-7-18f", "boot-7-18f", true},
		"the name of an earlier daemon":         {"boot-7", "boot-7-18f", true},
		"the name of an earlier daemon, later":  {"boot-7-18f", "boot-7", true},
		"nobody could make the key":             {"boot-7-0", "boot-7-18f", true},
		"no number, as on Wine":                 {"boot-0-18f", "boot-7-18f", true},
		"the largest":                           {most, most, true},
		"the largest, and an earlier daemon's":  {"boot-4294967295", most, true},
		"another number":                        {"boot-7-18f", "boot-8-18f", false},
		"another number, earlier daemons":       {"boot-7", "boot-8", false},
		"another number, an earlier daemon":     {"boot-7", "boot-8-18f", false},
		"a number that does not advance":        {"boot-7-18f", "boot-7-190", false},
		"no number, and another key":            {"boot-0-18f", "boot-0-190", false},
		"nothing in common":                     {"boot-7-0", "boot-0-18f", false},
		"nothing at all in common":              {"boot-0-0", "boot-0", false},
		"the time of the boot, and its key":     {"time-18f", "boot-0-18f", false},
		"two times":                             {"time-18f", "time-190", false},
		"one time":                              {"time-18f", "time-18f", true},
		"not known":                             {"", "boot-7", false},
		"not known any more":                    {"boot-7", "", false},
		"neither is known":                      {"", "", true},
		"no number, but text":                   {"boot-x", "boot-y", false},
		"a number that is too large":            {"boot-4294967296", "boot-4294967297", false},
		"a number that is cut to the largest":   {"boot-99999999999", "boot-4294967295-1", false},
		"a key that is cut to the largest":      {"boot-7-fffffffffffffffff", "boot-7-1", false},
		"a number with zeros before":            {"boot-007", "boot-7", false},
		"a sign":                                {"boot-+7", "boot-7", false},
		"capital letters":                       {"boot-7-18F", "boot-7-18f", false},
		"one part more":                         {"boot-7-18f-1", "boot-7-18f", false},
		"another word before":                   {"7-18f", "boot-7-18f", false},
		"names of a machine that is not ours":   {"{8f1d}", "{8f1e}", false},
		"a name of ours, and one that is not":   {"boot-7", "{8f1e}", false},
		"white space":                           {"boot-7 ", "boot-7", false},
		"a name that ends early":                {"boot-7-", "boot-7", false},
		"a number alone, and nothing before it": {"boot-", "boot-0", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := contract.SameBoot(c.stored, c.now); got != c.want {
				t.Errorf("SameBoot(%q, %q) = %t", c.stored, c.now, got)
			}
		})
	}
}

func FuzzSameBoot(f *testing.F) {
	for _, name := range []string{"", "boot-7", "boot-7-18f", "boot-0-18f", "time-18f", "boot-+7", "boot-7-"} {
		f.Add(name, "boot-7-18f", uint32(7), uint64(0x18f))
	}
	f.Fuzz(func(t *testing.T, one, other string, number uint32, begun uint64) {
		if !contract.SameBoot(one, one) {
			t.Errorf("%q is not itself", one)
		}
		if contract.SameBoot(one, other) != contract.SameBoot(other, one) {
			t.Errorf("%q and %q: the order matters", one, other)
		}
		name := contract.BootName(number, begun)
		if number != 0 && contract.SameBoot(name, contract.BootName(number-1, begun)) != (number == 1 && begun != 0) ||
			begun > 1 && contract.SameBoot(name, contract.BootName(number, begun-1)) {
			t.Errorf("%q is another boot's", name)
		}
	})
}
