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

// swapping is a file system that an ordinary user changes while cleanup runs.
type swapping struct {
	winos.Files
	// dir is the user's directory. swap is called once, as soon as a program has listed dir.
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

// C:\var\lib\kubelet is not protected, so a user may own a directory in it. If the user replaces this directory by a
// link during a cleanup, SYSTEM could delete or move any file. Cleanup must not follow the link.
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
				t.Errorf("the answer is %+v, %v", answer, err)
			}
			if content := read(t, r, system+`\SAM`); content != "MZ accounts" {
				t.Errorf("the file in the junction's target has %q", content)
			}
			if there, err := winos.Exists(r.Host().Files, contract.DirKubelet); err != nil || there {
				t.Errorf("the junction or its parent directory still exists: %v", err)
			}
		})
	}
}

// If a user owns a parent directory, the user could replace everything that cleanup checks. So cleanup keeps the data
// below the directory, and lists the data in its answer.
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
		t.Errorf("the kept paths are %q, want %q", answer.Kept, want)
	}
	if content := read(t, r, volume); content != "hunter2" {
		t.Errorf("the volume has %q", content)
	}
	if there, err := winos.Exists(r.Host().Files, contract.DirK); err != nil || there {
		t.Errorf(`C:\k still exists: %v`, err)
	}
}

// If a directory existed before the join, cleanup removes the daemon's files in it one by one.
func TestCleanupLeavesKeysAndFilesBelowAUsersDirectoryAndNamesThem(t *testing.T) {
	t.Parallel()
	const key, file = contract.DirKubeletPKI + `\kubelet-client-current.pem`, contract.DirTemp + `\readme.txt`
	const address = `C:\var\lib\cni\networks\` + contract.HybridOverlayNetwork + `\10.132.1.2`
	for name, c := range map[string]struct {
		disown string
		want   []string
	}{
		"nobody's":         {"", nil},
		"all":              {`C:\var`, []string{key, address}},
		"the keys'":        {contract.DirKubelet, []string{key}},
		"pods' addresses'": {`C:\var\lib\cni\networks`, []string{address}},
		"a network's":      {address[:strings.LastIndexByte(address, '\\')], []string{address}},
		"a file's":         {contract.DirTemp, []string{file}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			for _, dir := range []string{contract.DirKubeletPKI, `C:\var\lib\cni`} {
				if err := r.Host().Files.MkdirAll(dir, winos.AccessAdministrators); err != nil {
					t.Fatal(err)
				}
			}
			join(t, r)
			awaitReconciled(t, r)
			write(t, r, address, contract.SourceVIPEndpointName+"\r\n", winos.AccessInherit)
			if c.disown != "" {
				if err := r.Disown(c.disown); err != nil {
					t.Fatal(err)
				}
			}
			answer := cleanUp(t, r)
			for _, path := range []string{key, address, file} {
				there, err := winos.Exists(r.Host().Files, path)
				stays := slices.Contains(c.want, path)
				if err != nil || there != stays {
					t.Errorf("%s is there: %t, %v", path, there, err)
				}
				if named := slices.Contains(answer.Kept, path); named != stays {
					t.Errorf("%s is named: %t, in %q", path, named, answer.Kept)
				}
			}
		})
	}
}
