package policy_test

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/policy"
)

func TestReleasesThatAnOperatorMayMeet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		operator, node string
		supported      bool
	}{
		"the same":           {"1.4.0", "1.4.2", true},
		"one before":         {"1.4.0", "1.3.9", true},
		"two before":         {"1.4.0", "1.2.0", true},
		"three before":       {"1.4.0", "1.1.7", false},
		"the next":           {"1.4.0", "1.5.0", true},
		"the one after next": {"1.4.0", "1.6.0", false},
		"another major":      {"2.0.0", "1.9.0", false},
		"a developer's":      {"devel", "1.0.0", true},
		"nothing yet":        {"1.4.0", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if why := policy.CheckSkew(test.operator, test.node); (why == "") != test.supported {
				t.Errorf("%q", why)
			}
		})
	}
}
