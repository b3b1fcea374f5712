package main

import (
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

func TestA61_ThePayloadOfTheImageIsCopiedIntoTheDirectoryThatIsNamed(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	if _, err := assembly.WriteStandins(from, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(&out, from, []string{to}); err != nil {
		t.Fatal(err)
	}
	if _, err := payload.OpenDir(to); err != nil || !strings.Contains(out.String(), "1.2.3") {
		t.Errorf("%v, printed %q", err, out.String())
	}
	for name, args := range map[string][]string{"no directory": nil, "an empty name": {""}, "two directories": {to, to}} {
		if err := run(&out, from, args); err == nil {
			t.Errorf("%s: the program succeeds", name)
		}
	}
	if err := run(&out, t.TempDir(), []string{to}); err == nil {
		t.Error("copying without a payload succeeds")
	}
}
