package cluster

import (
	"io"
	"testing"
)

func TestABuildSaysHowMuchIsLeft(t *testing.T) {
	t.Parallel()
	o := newBuildOutput([]string{"a.test/one", "a.test/two", "a.test/three"})
	for _, step := range []struct{ said, left, complaints string }{
		{"", "3 of 3 packages left", ""},
		{"a.test/one\na.te", "2 of 3 packages left, now a.test/one", ""},
		{"st/two\n# a.test/two\ntwo.go:3:5: undefined: x\n", "1 of 3 packages left, now a.test/two",
			"# a.test/two\ntwo.go:3:5: undefined: x"},
		{"a.test/three\n", "all 3 packages compiled, linking", "# a.test/two\ntwo.go:3:5: undefined: x"},
	} {
		if _, err := io.WriteString(o, step.said); err != nil {
			t.Fatal(err)
		}
		if o.left() != step.left || o.String() != step.complaints {
			t.Errorf("after %q: %q, %q", step.said, o.left(), o.String())
		}
	}
}
