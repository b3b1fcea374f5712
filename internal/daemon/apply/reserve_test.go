package apply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// swapping is a file system in which an ordinary user replaces a directory with a junction just before a file in the
// directory is removed.
type swapping struct {
	winos.Files
	m       *sim.Machine
	dir, to string
}

func (s swapping) Remove(path string) error {
	if contract.Within(s.dir, path) {
		if err := s.Rename(s.dir, s.dir+"-mine"); err != nil {
			return err
		}
		if err := s.m.MakeJunction(s.dir, s.to); err != nil {
			return err
		}
	}
	return s.Files.Remove(path)
}

// If C:\var\lib\cni existed before the join, ordinary users may have the right to write there.
func TestReleasingAddressesRemovesNothingThroughAUsersDirectory(t *testing.T) {
	t.Parallel()
	const networks, system = `C:\var\lib\cni\networks`, `C:\Windows\System32\config`
	const reservation = contract.SourceVIPEndpointName + "\r\n"
	m := machine(t)
	files := m.Host().Files
	for _, path := range []string{networks + `\ours\10.1.2.3`, networks + `\theirs\SAM`, system + `\SAM`} {
		if err := files.MkdirAll(path[:strings.LastIndexByte(path, '\\')], winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
		if err := winos.WriteFile(files, path, strings.NewReader(reservation), winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Disown(networks + `\theirs`); err != nil {
		t.Fatal(err)
	}
	kept, err := apply.ReleaseAddresses(swapping{files, m, networks + `\theirs`, system})
	if err != nil || !slices.Equal(kept, []string{networks + `\theirs\SAM`}) {
		t.Errorf("the kept paths are %q, %v", kept, err)
	}
	for path, want := range map[string]bool{system + `\SAM`: true, networks + `\ours\10.1.2.3`: false} {
		if there, err := winos.Exists(files, path); err != nil || there != want {
			t.Errorf("%s: %t, %v", path, there, err)
		}
	}
}
