package winostest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func fileCases() []testCase {
	return []testCase{
		{name: "a file is written and replaced as a whole", run: fileReplaced},
		{name: "a large file comes back as it was", run: fileLarge},
		{name: "what is not there is not found and is removed already", run: fileMissing},
		{name: "a directory is made with its parents and listed", run: fileDirectory},
		{name: "a directory is no file and a file no directory", run: fileKinds},
		{name: "a directory is removed only when it is empty", run: fileRemoved},
		{name: "of a directory that is removed, what somebody holds stays and is named", needs: []Ability{SharingModes},
			run: fileHeld},
		{name: "a directory is removed with its junctions, and not what they lead to", needs: []Ability{Junctions},
			run: fileJunctions},
		{name: "a rename replaces the target and moves directories", run: fileRenamed},
		{name: "a rename that fails changes nothing", run: fileRenameFails},
		{name: "a file being written is left alone by others", needs: []Ability{SharingModes}, run: fileShared},
		{name: "a file that is being read is replaced as soon as it is closed", run: fileReadMeanwhile},
		{name: "access is for administrators when asked for", needs: []Ability{FileAccess}, run: fileAccess},
		{name: "a file knows its size and time", run: fileStat},
		{name: "a closed file is closed", run: fileClosed},
	}
}

func fileReplaced(m machine) {
	t := m.t
	path := m.dir + `\file.txt`
	for _, content := range []string{"first", "", "the second, which is longer", "3rd"} {
		m.write(t, path, content)
		if have := m.read(t, path); have != content {
			t.Errorf("read %q, want %q", have, content)
		}
	}
	if names := m.names(t, m.dir); !slices.Equal(names, []string{"file.txt"}) {
		t.Errorf("the directory has %q", names)
	}
	// The old content must stay until the new content is complete.
	broken := io.MultiReader(strings.NewReader("half"), failing{})
	isError(t, "writing", winos.WriteFile(m.Host.Files, path, broken, winos.AccessInherit), errBroken)
	if have := m.read(t, path); have != "3rd" {
		t.Errorf("after a write that failed, the file contains %q", have)
	}
	if names := m.names(t, m.dir); !slices.Equal(names, []string{"file.txt"}) {
		t.Errorf("after a write that failed, the directory has %q", names)
	}
}

var errBroken = errors.New("the source is broken")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

func fileLarge(m machine) {
	t := m.t
	content := make([]byte, 3<<20+17)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	path := m.dir + `\large.bin`
	noError(t, winos.WriteFile(m.Host.Files, path, bytes.NewReader(content), winos.AccessInherit))
	if have := m.read(t, path); have != string(content) {
		t.Error("the content differs")
	}
	info, err := m.Host.Files.Stat(path)
	noError(t, err)
	if info.Size != int64(len(content)) {
		t.Errorf("the size is %d, want %d", info.Size, len(content))
	}
}

func fileMissing(m machine) {
	t := m.t
	files := m.Host.Files
	for _, path := range []string{m.dir + `\nothing`, m.dir + `\no\thing`, `Q:\nothing`} {
		_, err := files.Open(path)
		isError(t, "opening "+path, err, fs.ErrNotExist)
		_, err = files.Stat(path)
		isError(t, "looking at "+path, err, fs.ErrNotExist)
		_, err = files.List(path)
		isError(t, "listing "+path, err, fs.ErrNotExist)
		isError(t, "renaming "+path, files.Rename(path, m.dir+`\second`), fs.ErrNotExist)
		noError(t, files.Remove(path))
		noError(t, files.RemoveAll(path))
	}
	_, err := files.Create(m.dir+`\no\thing`, winos.AccessInherit)
	isError(t, "creating in a directory that is not there", err, fs.ErrNotExist)
	m.write(t, m.dir+`\file`, "x")
	isError(t, "renaming into a directory that is not there", files.Rename(m.dir+`\file`, m.dir+`\no\file`),
		fs.ErrNotExist)
}

func fileDirectory(m machine) {
	t := m.t
	deep := m.dir + `\One\two\Drei ünd 4`
	for range 2 {
		noError(t, m.Host.Files.MkdirAll(deep, winos.AccessInherit))
	}
	m.write(t, m.dir+`\One\file`, "x")
	infos, err := m.Host.Files.List(m.dir + `\One`)
	noError(t, err)
	slices.SortFunc(infos, func(a, b winos.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	if len(infos) != 2 || infos[0].Name != "file" || infos[0].Dir || infos[0].Size != 1 || infos[1].Name != "two" ||
		!infos[1].Dir {
		t.Errorf("the directory has %+v", infos)
	}
	if names := m.names(t, deep); len(names) != 0 {
		t.Errorf("an empty directory has %q", names)
	}
	info, err := m.Host.Files.Stat(deep)
	noError(t, err)
	if !info.Dir {
		t.Error("a directory is not reported as a directory")
	}
	root, err := m.Host.Files.Stat(m.dir[:3])
	noError(t, err)
	if !root.Dir {
		t.Error("the root of the drive is not reported as a directory")
	}
	noError(t, m.Host.Files.MkdirAll(m.dir[:3], winos.AccessInherit))
}

func fileKinds(m machine) {
	t := m.t
	files := m.Host.Files
	m.write(t, m.dir+`\file`, "x")
	mkdir(t, m, m.dir+`\dir`)
	for _, access := range []winos.Access{winos.AccessInherit, winos.AccessAdministrators} {
		_, err := files.Create(m.dir+`\dir`, access)
		isError(t, "creating a file where a directory is", err, winos.ErrDenied)
	}
	isError(t, "making a directory where a file is", files.MkdirAll(m.dir+`\file`, winos.AccessInherit), fs.ErrExist)
	if err := files.MkdirAll(m.dir+`\file\below`, winos.AccessInherit); err == nil {
		t.Error("a directory was created below a file")
	}
	if _, err := files.Create(m.dir+`\file\below`, winos.AccessInherit); err == nil {
		t.Error("a file was created below a file")
	}
	if _, err := files.List(m.dir + `\file`); err == nil {
		t.Error("listing a file succeeded, but it must fail")
	}
	if err := files.Rename(m.dir+`\file`, m.dir+`\dir`); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if names := m.names(t, m.dir); !slices.Equal(names, []string{"dir", "file"}) {
		t.Errorf("the directory has %q", names)
	}
}

func fileRemoved(m machine) {
	t := m.t
	files, dir := m.Host.Files, m.dir+`\dir`
	mkdir(t, m, dir+`\sub`)
	m.write(t, dir+`\sub\file`, "x")
	if err := files.Remove(dir); err == nil {
		t.Error("a directory with content was removed")
	}
	if have := m.read(t, dir+`\sub\file`); have != "x" {
		t.Error("the file in it was changed")
	}
	noError(t, files.Remove(dir+`\sub\file`))
	noError(t, files.Remove(dir+`\sub\file`))
	noError(t, files.Remove(dir+`\sub`))
	mkdir(t, m, dir+`\a\b\c`)
	m.write(t, dir+`\a\b\file`, "x")
	noError(t, files.RemoveAll(dir))
	if names := m.names(t, m.dir); len(names) != 0 {
		t.Errorf("the directory has %q", names)
	}
}

func fileHeld(m machine) {
	t := m.t
	files, dir := m.Host.Files, m.dir+`\dir`
	held := dir + `\b\held`
	mkdir(t, m, dir+`\a`)
	mkdir(t, m, dir+`\b\empty`)
	for _, path := range []string{dir + `\a\file`, dir + `\b\before`, dir + `\b\then`, dir + `\c`} {
		m.write(t, path, "x")
	}
	w, err := files.Create(held, winos.AccessInherit)
	noError(t, err)
	err = files.RemoveAll(dir)
	isError(t, "removing the directory", err, winos.ErrInUse)
	if err != nil && !strings.Contains(err.Error(), held) {
		t.Errorf("the error does not name %s: %v", held, err)
	}
	for path, want := range map[string]string{dir: "b", dir + `\b`: "held"} {
		if names := m.names(t, path); !slices.Equal(names, []string{want}) {
			t.Errorf("%s has %q", path, names)
		}
	}
	noError(t, w.Close())
	noError(t, files.RemoveAll(dir))
	m.write(t, m.dir+`\file`, "x")
	noError(t, files.RemoveAll(m.dir+`\file`))
	if names := m.names(t, m.dir); len(names) != 0 {
		t.Errorf("the directory has %q", names)
	}
	isError(t, "removing the drive", files.RemoveAll(m.dir[:3]), winos.ErrDenied)
}

func fileJunctions(m machine) {
	t := m.t
	files, dir := m.Host.Files, m.dir+`\dir`
	kept := m.dir + `\kept`
	mkdir(t, m, kept+`\sub`)
	m.write(t, kept+`\sub\file`, "x")
	mkdir(t, m, dir+`\a`)
	m.MakeJunction(t, dir+`\a\leads`, kept)
	m.MakeJunction(t, m.dir+`\alone`, kept)
	if have := m.read(t, dir+`\a\leads\sub\file`); have != "x" {
		t.Fatalf("read %q through the junction", have)
	}
	if info, err := files.Stat(dir + `\a\leads`); err != nil || info.Dir {
		t.Errorf("the junction is %+v, %v", info, err)
	}
	noError(t, files.RemoveAll(dir))
	noError(t, files.RemoveAll(m.dir+`\alone`))
	if names := m.names(t, m.dir); !slices.Equal(names, []string{"kept"}) {
		t.Errorf("the directory has %q", names)
	}
	if have := m.read(t, kept+`\sub\file`); have != "x" {
		t.Errorf("the target of the links contains %q", have)
	}
}

func fileRenamed(m machine) {
	t := m.t
	files := m.Host.Files
	m.write(t, m.dir+`\from`, "new")
	m.write(t, m.dir+`\to`, "old")
	noError(t, files.Rename(m.dir+`\from`, m.dir+`\to`))
	if have := m.read(t, m.dir+`\to`); have != "new" {
		t.Errorf("the target contains %q", have)
	}
	mkdir(t, m, m.dir+`\dir\sub`)
	m.write(t, m.dir+`\dir\sub\file`, "x")
	noError(t, files.Rename(m.dir+`\dir`, m.dir+`\moved`))
	if have := m.read(t, m.dir+`\moved\sub\file`); have != "x" {
		t.Errorf("after the move of its directory, the file contains %q", have)
	}
	noError(t, files.Rename(m.dir+`\moved\sub\file`, m.dir+`\file`))
	if names := m.names(t, m.dir); !slices.Equal(names, []string{"file", "moved", "to"}) {
		t.Errorf("the directory has %q", names)
	}
}

func fileRenameFails(m machine) {
	t := m.t
	files := m.Host.Files
	mkdir(t, m, m.dir+`\dir\sub`)
	m.write(t, m.dir+`\dir\file`, "x")
	if err := files.Rename(m.dir+`\dir`, m.dir+`\dir\sub\dir`); err == nil {
		t.Error("a directory was moved into itself")
	}
	if have := m.read(t, m.dir+`\dir\file`); have != "x" {
		t.Errorf("the file contains %q", have)
	}
}

func fileShared(m machine) {
	t := m.t
	files, path := m.Host.Files, m.dir+`\file`
	w, err := files.Create(path, winos.AccessInherit)
	noError(t, err)
	_, err = io.WriteString(w, "half")
	noError(t, err)
	_, err = files.Create(path, winos.AccessInherit)
	isError(t, "creating it meanwhile", err, winos.ErrInUse)
	isError(t, "removing it meanwhile", files.Remove(path), winos.ErrInUse)
	isError(t, "moving it meanwhile", files.Rename(path, m.dir+`\second`), winos.ErrInUse)
	m.write(t, m.dir+`\new`, "new")
	if err := files.Rename(m.dir+`\new`, path); err == nil {
		t.Error("a file that is being written was replaced")
	}
	_, err = io.WriteString(w, " whole")
	noError(t, err)
	noError(t, w.Close())
	if have := m.read(t, path); have != "half whole" {
		t.Errorf("the file contains %q", have)
	}
	noError(t, files.Remove(path))
}

// moving wraps a file system. After each attempt to rename a file, it calls a function.
type moving struct {
	winos.Files
	after func()
}

// Rename implements winos.Files.
func (f moving) Rename(from, to string) error {
	defer f.after()
	return f.Files.Rename(from, to)
}

// Another program has the file open for a moment, as a virus scanner does. Replacing the file must still succeed.
func fileReadMeanwhile(m machine) {
	t := m.t
	files, path := m.Host.Files, m.dir+`\file`
	m.write(t, path, "old")
	r, err := files.Open(path)
	noError(t, err)
	closed := sync.OnceValue(r.Close)
	scanned := moving{files, func() { _ = closed() }}
	noError(t, winos.WriteFile(scanned, path, strings.NewReader("new"), winos.AccessInherit))
	noError(t, closed())
	if have := m.read(t, path); have != "new" {
		t.Errorf("the file contains %q", have)
	}
	noError(t, files.Remove(path))
}

func fileAccess(m machine) {
	t := m.t
	files := m.Host.Files
	expect := func(path string, want winos.Access) {
		t.Helper()
		info, err := files.Stat(path)
		noError(t, err)
		if info.Access != want {
			t.Errorf("the access of %s is %d, want %d", path, info.Access, want)
		}
		if info.Foreign {
			t.Errorf("%s, which this test created, has another owner", path)
		}
		infos, err := files.List(m.dir)
		noError(t, err)
		for _, listed := range infos {
			if m.dir+`\`+listed.Name == path && listed.Access != want {
				t.Errorf("in the listing, the access of %s is %d, want %d", path, listed.Access, want)
			}
		}
	}
	noError(t, files.MkdirAll(m.dir+`\secret\deep`, winos.AccessAdministrators))
	expect(m.dir+`\secret`, winos.AccessAdministrators)
	expect(m.dir+`\secret\deep`, winos.AccessAdministrators)
	noError(t, files.MkdirAll(m.dir+`\users\deep`, winos.AccessUsers))
	for _, path := range []string{`\users`, `\users\deep`} {
		info, err := files.Stat(m.dir + path)
		noError(t, err)
		if info.Foreign {
			t.Errorf("%s%s, which this test created, has another owner", m.dir, path)
		}
	}
	noError(t, files.MkdirAll(m.dir+`\open`, winos.AccessInherit))
	expect(m.dir+`\open`, winos.AccessInherit)
	noError(t, files.MkdirAll(m.dir+`\open`, winos.AccessAdministrators))
	expect(m.dir+`\open`, winos.AccessInherit) // access applies to the directories that MkdirAll creates
	secret := m.dir + `\key.pem`
	for _, content := range []string{"one", "two"} {
		noError(t, winos.WriteFile(files, secret, strings.NewReader(content), winos.AccessAdministrators))
		expect(secret, winos.AccessAdministrators)
		if have := m.read(t, secret); have != content {
			t.Errorf("read %q, want %q", have, content)
		}
	}
	m.write(t, m.dir+`\plain`, "x")
	expect(m.dir+`\plain`, winos.AccessInherit)
	w, err := files.Create(m.dir+`\plain`, winos.AccessAdministrators)
	noError(t, err)
	noError(t, w.Close())
	expect(m.dir+`\plain`, winos.AccessAdministrators)
	for _, access := range []winos.Access{winos.AccessAdministrators, winos.AccessInherit} {
		w, err = files.Create(m.dir+`\file.tmp`, access) // a new handle each time
		noError(t, err)
		noError(t, w.Close())
		expect(m.dir+`\file.tmp`, access)
	}
	noError(t, files.Rename(secret, m.dir+`\renamed`))
	expect(m.dir+`\renamed`, winos.AccessAdministrators)
}

func fileStat(m machine) {
	t := m.t
	before := m.Host.System.Now().Add(-3 * time.Second) // file systems round times
	m.write(t, m.dir+`\file`, "12345")
	info, err := m.Host.Files.Stat(m.dir + `\file`)
	noError(t, err)
	if info.Name != "file" || info.Size != 5 || info.Dir {
		t.Errorf("the file is %+v", info)
	}
	if after := m.Host.System.Now().Add(3 * time.Second); info.ModTime.Before(before) || info.ModTime.After(after) {
		t.Errorf("the modification time is %v, want it between %v and %v", info.ModTime, before, after)
	}
}

func fileClosed(m machine) {
	t := m.t
	m.write(t, m.dir+`\file`, "x")
	r, err := m.Host.Files.Open(m.dir + `\file`)
	noError(t, err)
	noError(t, r.Close())
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("reading a closed file succeeded")
	}
	w, err := m.Host.Files.Create(m.dir+`\file`, winos.AccessInherit)
	noError(t, err)
	noError(t, w.Close())
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("writing a closed file succeeded")
	}
}
