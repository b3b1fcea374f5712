package verbs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// swapping is the file system of a host on which an ordinary user looks on.
type swapping struct {
	winos.Files
	// dir is the user's, and swap what he does as soon as somebody knows what lies in it.
	dir  string
	swap func()
}

func (s *swapping) List(dir string) ([]winos.FileInfo, error) {
	infos, err := s.Files.List(dir)
	if s.swap != nil && strings.EqualFold(dir, s.dir) {
		s.swap()
		s.swap = nil
	}
	return infos, err
}

func (s *swapping) RemoveAll(path string) error {
	if s.swap != nil && contract.Within(path, s.dir) {
		s.swap()
		s.swap = nil
	}
	return s.Files.RemoveAll(path)
}

// A user could have SYSTEM delete or move any file: C:\var\lib\kubelet is not closed, so he may have a
// directory in it.
func TestCleanupFollowsNoLinkThatAUserPutsInThePlaceOfADirectory(t *testing.T) {
	t.Parallel()
	const theirs, away = contract.DirKubelet + `\x`, `C:\Users\mallory\x`
	for name, running := range map[string]bool{"a file": false, "a program that runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			join(t, r)
			const system = `C:\Windows\System32\config`
			write(t, r, system+`\SAM`, "MZ accounts", winos.AccessAdministrators)
			write(t, r, theirs+`\SAM`, "MZ", winos.AccessInherit)
			write(t, r, away+`\empty`, "", winos.AccessInherit)
			if running {
				r.SetUnkillable(system+`\SAM`, true)
				if _, err := r.StartProgram(system + `\SAM`); err != nil {
					t.Fatal(err)
				}
			}
			host := r.Host()
			host.Files = &swapping{Files: host.Files, dir: theirs, swap: func() {
				if err := host.Files.Rename(theirs, away+`\x`); err != nil {
					t.Error(err)
				}
				if err := r.MakeJunction(theirs, system); err != nil {
					t.Error(err)
				}
			}}
			answer, err := verbs.Cleanup(t.Context(), host, verbs.Where{})
			if err != nil || len(answer.Left) > 0 {
				t.Errorf("it answers %+v, %v", answer, err)
			}
			if content := read(t, r, system+`\SAM`); content != "MZ accounts" {
				t.Errorf("what the junction leads to holds %q", content)
			}
			if there, err := winos.Exists(r.Host().Files, contract.DirKubelet); err != nil || there {
				t.Errorf("the junction and what is above it stay: %v", err)
			}
		})
	}
}

// Who owns a directory above could exchange all that cleanup looks at.
func TestCleanupLeavesDataBelowAUsersDirectoryAndNamesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	const volume = contract.DirKubelet + `\pods\7f6c\volumes\password`
	write(t, r, volume, "hunter2", winos.AccessInherit)
	if err := r.Disown(`C:\var`); err != nil {
		t.Fatal(err)
	}
	answer := cleanUp(t, r)
	want := []string{contract.DirKubelet, contract.DirKubeletPKI, `C:\var\lib\cni`}
	if !slices.Equal(answer.Kept, want) {
		t.Errorf("it keeps %q, want %q", answer.Kept, want)
	}
	if content := read(t, r, volume); content != "hunter2" {
		t.Errorf("a volume holds %q", content)
	}
	if there, err := winos.Exists(r.Host().Files, contract.DirK); err != nil || there {
		t.Errorf(`C:\k is still there: %v`, err)
	}
}
