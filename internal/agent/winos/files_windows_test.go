package winos_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// newDir makes a directory that is removed afterwards.
func newDir(t *testing.T) string {
	t.Helper()
	dir := fmt.Sprintf(`C:\winos-test-%d`, time.Now().UnixNano())
	files := winos.New().Files
	if err := files.MkdirAll(dir, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := winos.RemoveAll(files, dir); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return dir
}

func TestFilesHoldWhatWasWritten(t *testing.T) {
	files := winos.New().Files
	dir := newDir(t)
	for _, access := range []winos.Access{winos.AccessInherit, winos.AccessAdministrators} {
		path := fmt.Sprintf(`%s\Größe %d.txt`, dir, access)
		for _, content := range []string{"first and long", "second", ""} {
			if err := winos.WriteFile(files, path, strings.NewReader(content), access); err != nil {
				t.Fatal(err)
			}
			got, err := winos.ReadFile(files, path)
			if err != nil || string(got) != content {
				t.Errorf("read %q, %v; want %q", got, err, content)
			}
			info, err := files.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Name != path[len(dir)+1:] || info.Size != int64(len(content)) || info.Dir || time.Since(info.ModTime).Abs() > time.Minute {
				t.Errorf("Stat = %+v", info)
			}
			if info.Access != access && (access == winos.AccessInherit || !onWine()) {
				t.Errorf("access %v, want %v", info.Access, access)
			}
		}
	}
	all, err := files.List(dir)
	if err != nil || len(all) != 2 || all[0].Name != "Größe 0.txt" || all[1].Name != "Größe 1.txt" {
		t.Errorf("List = %+v, %v", all, err)
	}
}

func TestAFileMadeForAdministratorsReplacesOneThatOthersMayRead(t *testing.T) {
	files := winos.New().Files
	path := newDir(t) + `\secret`
	for _, access := range []winos.Access{winos.AccessInherit, winos.AccessAdministrators} {
		w, err := files.Create(path, access)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := files.Stat(path)
	if err != nil || info.Size != 1 || info.Access != winos.AccessAdministrators && !onWine() {
		t.Errorf("Stat = %+v, %v", info, err)
	}
}

func TestMkdirAllMakesParentsAndTakesWhatIsThere(t *testing.T) {
	files := winos.New().Files
	dir := newDir(t)
	deep := dir + `\a\b\` + strings.Repeat("long ", 40) + `x\` + strings.Repeat("longer ", 30) + "y"
	if len(deep) < 300 {
		t.Fatal("the path is meant to be longer than 260")
	}
	for range 2 {
		if err := files.MkdirAll(deep, winos.AccessAdministrators); err != nil {
			t.Fatal(err)
		}
	}
	if err := winos.WriteFile(files, deep+`\f`, strings.NewReader("deep"), winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	if err := files.MkdirAll(deep+`\f\g`, winos.AccessInherit); !errors.Is(err, fs.ErrExist) {
		t.Errorf("MkdirAll through a file: %v", err)
	}
	if err := files.Remove(dir + `\a`); err == nil {
		t.Error("Remove took a directory that is not empty")
	}
	if info, err := files.Stat(dir + `\a`); err != nil || !info.Dir || info.Access != winos.AccessAdministrators && !onWine() {
		t.Errorf("Stat = %+v, %v", info, err)
	}
}

func TestWhatDoesNotExistIsSaidSo(t *testing.T) {
	files := winos.New().Files
	dir := newDir(t)
	for _, path := range []string{dir + `\absent`, dir + `\absent\below`, `Q:\absent`} {
		_, open := files.Open(path)
		_, stat := files.Stat(path)
		_, list := files.List(path)
		for doing, err := range map[string]error{"Open": open, "Stat": stat, "List": list, "Rename": files.Rename(path, dir+`\x`)} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s of %s: %v; want fs.ErrNotExist", doing, path, err)
			}
		}
		if err := files.Remove(path); err != nil {
			t.Errorf("Remove of %s: %v", path, err)
		}
	}
	if _, err := files.Create(dir+`\absent\f`, winos.AccessInherit); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Create: %v; want fs.ErrNotExist", err)
	}
}

func TestIllegalNamesNeverReachTheSystem(t *testing.T) {
	files := winos.New().Files
	dir := newDir(t)
	for _, path := range []string{dir + `\a:b`, dir + `\nul`, dir + `\x.`, dir + `/x`, dir + `\`, dir + `\..\x`, `k\x`, ""} {
		_, open := files.Open(path)
		_, create := files.Create(path, winos.AccessInherit)
		_, stat := files.Stat(path)
		_, list := files.List(path)
		for doing, err := range map[string]error{
			"Open": open, "Create": create, "Stat": stat, "List": list, "Remove": files.Remove(path),
			"MkdirAll": files.MkdirAll(path, winos.AccessInherit), "Rename": files.Rename(dir, path), "Rename from": files.Rename(path, dir+`\y`),
		} {
			if !errors.Is(err, winos.ErrInvalidName) {
				t.Errorf("%s of %q: %v; want ErrInvalidName", doing, path, err)
			}
		}
	}
	if all, err := files.List(dir); err != nil || len(all) != 0 {
		t.Errorf("List = %v, %v; want nothing", all, err)
	}
}

func TestARunningExeMayBeMovedButNeitherReplacedNorRemoved(t *testing.T) {
	host := winos.New()
	dir := newDir(t)
	exe := dir + `\service.exe`
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := winos.WriteFile(host.Files, exe, bytes.NewReader(content), winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	name := newService(t, "exe")
	apply(t, winos.ServiceConfig{Name: name, Command: fmt.Sprintf(`"%s" %s linger`, exe, serveArg)})
	if err := host.Services.Start(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := host.Files.Remove(exe); !errors.Is(err, winos.ErrInUse) {
		t.Errorf("Remove of a running exe: %v; want ErrInUse", err)
	}
	if err := winos.WriteFile(host.Files, exe, strings.NewReader("new"), winos.AccessInherit); !errors.Is(err, winos.ErrInUse) {
		t.Errorf("replacing a running exe: %v; want ErrInUse", err)
	}
	if _, err := host.Files.Create(exe, winos.AccessInherit); !errors.Is(err, winos.ErrInUse) {
		t.Errorf("Create over a running exe: %v; want ErrInUse", err)
	}
	if err := host.Files.Rename(exe, exe+".old-1"); err != nil {
		t.Errorf("moving a running exe aside: %v", err)
	}
	if err := winos.WriteFile(host.Files, exe, strings.NewReader("new"), winos.AccessInherit); err != nil {
		t.Errorf("writing in its place: %v", err)
	}
	if err := host.Services.Stop(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := host.Files.Remove(exe + ".old-1"); err != nil {
		t.Errorf("Remove after Stop: %v", err)
	}
}

func TestAFileThatIsBeingWrittenIsInUse(t *testing.T) {
	files := winos.New().Files
	dir := newDir(t)
	w, err := files.Create(dir+`\f`, winos.AccessInherit)
	if err != nil {
		t.Fatal(err)
	}
	for doing, err := range map[string]error{"Remove": files.Remove(dir + `\f`), "Rename": files.Rename(dir+`\f`, dir+`\g`)} {
		if !errors.Is(err, winos.ErrInUse) {
			t.Errorf("%s: %v; want ErrInUse", doing, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := files.Rename(dir+`\f`, dir+`\g`); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyFilesAreRemovedToo(t *testing.T) {
	files := winos.New().Files
	path := newDir(t) + `\f`
	if err := os.WriteFile(path, []byte("x"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := files.Remove(path); err != nil {
		t.Error(err)
	}
}

func TestTheRootOfTheSystemDriveCanBeListed(t *testing.T) {
	files := winos.New().Files
	all, err := files.List(`C:\`)
	if err != nil || !slices.ContainsFunc(all, func(i winos.FileInfo) bool { return strings.EqualFold(i.Name, "Windows") && i.Dir }) {
		t.Errorf("List = %+v, %v", all, err)
	}
	if info, err := files.Stat(`C:\`); err != nil || !info.Dir {
		t.Errorf("Stat = %+v, %v", info, err)
	}
	if err := files.MkdirAll(`C:\`, winos.AccessInherit); err != nil {
		t.Error(err)
	}
}
