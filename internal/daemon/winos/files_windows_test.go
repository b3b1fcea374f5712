package winos_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func TestReadOnlyFilesAreRemovedToo(t *testing.T) {
	files := winos.New().Files
	path := newDir(t) + `\file`
	if err := os.WriteFile(path, []byte("x"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := files.Remove(path); err != nil {
		t.Error(err)
	}
	dir := newDir(t)
	if err := os.WriteFile(dir+`\file`, []byte("x"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := files.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

func TestTheRootOfTheSystemDriveIsADirectory(t *testing.T) {
	files := winos.New().Files
	all, err := files.List(`C:\`)
	if err != nil || !slices.ContainsFunc(all,
		func(i winos.FileInfo) bool { return strings.EqualFold(i.Name, "Windows") && i.Dir }) {
		t.Errorf("List = %+v, %v", all, err)
	}
	if info, err := files.Stat(`C:\`); err != nil || !info.Dir {
		t.Errorf("Stat = %+v, %v", info, err)
	}
	if err := files.MkdirAll(`C:\`, winos.AccessInherit); err != nil {
		t.Error(err)
	}
}

func TestADriveThatDoesNotExistHoldsNothing(t *testing.T) {
	files := winos.New().Files
	if there, err := winos.Exists(files, `Q:\k`); there || err != nil {
		t.Errorf("Exists = %t, %v", there, err)
	}
	if err := files.Remove(`Q:\k`); err != nil {
		t.Error(err)
	}
}

func TestRemovingADirectoryDoesNotFollowALinkInIt(t *testing.T) {
	files := winos.New().Files
	dir := newDir(t)
	for _, d := range []string{dir + `\keep`, dir + `\goes`} {
		if err := files.MkdirAll(d, winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
	}
	if err := winos.WriteFile(files, dir+`\keep\file`, strings.NewReader("x"), winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+`\keep`, dir+`\goes\link`); err != nil {
		t.Skipf("this system has no links: %v", err)
	}
	if _, err := os.Lstat(dir + `\goes\link`); errors.Is(err, os.ErrNotExist) {
		t.Skip("this system has no links, although it reports success (Wine)")
	}
	if err := files.RemoveAll(dir + `\goes`); err != nil {
		t.Error(err)
	}
	if there, err := winos.Exists(files, dir+`\keep\file`); !there || err != nil {
		t.Errorf("the link's target was deleted: %v", err)
	}
}
