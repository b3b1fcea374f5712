package winos_test

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func TestAProgramThatWasMovedAsideIsKnownByItsFirstPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		winos.AsidePath(`C:\k\kubelet.exe`, 0):   `C:\k\kubelet.exe`,
		winos.AsidePath(`C:\k\kubelet.exe`, 137): `C:\k\kubelet.exe`,
		`C:\k\kubelet.exe.old-1`:                 `C:\k\kubelet.exe`,
		`c:\K\KUBELET.EXE.OLD-1`:                 `c:\K\KUBELET.EXE`, // Windows ignores case
		`C:\k\ü.exe.old-1`:                       `C:\k\ü.exe`,
		`C:\k.old-1\kubelet.exe.old-2`:           `C:\k.old-1\kubelet.exe`,
		`C:\k\kubelet.exe.old-1.old-2`:           `C:\k\kubelet.exe.old-1`,
	} {
		if got := winos.StartedPath(path); got != want {
			t.Errorf("%s was started as %s, want %s", path, got, want)
		}
	}
}

func TestWhatWasNotMovedAsideKeepsItsPath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"", "7", ".old-1", `C:\k\kubelet.exe`, `C:\k\kubelet2`, `C:\k\kubelet.exe.old`, `C:\k\kubelet.exe.old-`,
		`C:\k\kubelet.exe.old-x`, `C:\k\kubelet.exe.old-1x`, `C:\k\kubelet.exe.old--1`, `C:\k\kubelet.exe.old-1.exe`,
		`C:\k\kubelet.exe.old-²`, `C:\k\kubelet.exe-old-1`, `C:\k.old-1\kubelet.exe`, `C:\k.old-1\7`, `C:\k\.old-1`,
	} {
		if got := winos.StartedPath(path); got != path {
			t.Errorf("%s was started as %s", path, got)
		}
	}
}
