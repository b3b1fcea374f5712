package winostest

import (
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func nameCases() []testCase {
	return []testCase{
		{name: "names that Windows refuses or changes are refused by everything", run: namesRefused},
		{name: "names that look odd and are legal are kept", run: namesKept},
		{name: "case makes no difference and is kept", needs: []Ability{CaseInsensitive}, run: namesCase},
		{name: "paths may be longer than two hundred and sixty characters", needs: []Ability{LongPaths},
			run: namesLong},
	}
}

// BadNames returns names that can't be the last part of a path.
func BadNames() []string {
	return []string{
		``, `.`, `..`, ` `, `dot.`, `space `, `dots...`, `a:b`, `a:$DATA`, `host:5000`, `*.example.com`, `what?`,
		`"quoted"`, `<less`, `more>`, `pipe|`,
		`slash/slash`, "tab\t", "new\nline", "nul\x00", "bell\x07", "bad\xffutf8", `CON`, `con`, `CON.txt`,
		`nul.tar.gz`, `AUX`, `PRN.log`, `COM1`, `com9.exe`,
		`LPT1`, `COM¹`, `lpt³.txt`, `NUL .txt`, `CONIN$`, `conout$`, strings.Repeat("x", 256), strings.Repeat("😀", 128),
	}
}

// BadPaths returns paths that are not absolute paths on a drive.
func BadPaths() []string {
	return []string{
		``, `C`, `C:`, `C:file`, `\`, `\Windows`, `file`, `.\file`, `C:/Windows`, `/C:/Windows`, `\\server\share\file`,
		`\\?\C:\Windows`, `\\.\NUL`, `1:\file`,
		`CC:\file`, `ä:\file`, `C:\\file`, `C:\dir\`, `C:\dir\\file`, `C:\a\..\b`, `C:\a\.\b`, `C:\CON\file`,
		`C:\dot.\file`,
	}
}

func namesRefused(m machine) {
	t := m.t
	paths := BadPaths()
	for _, name := range BadNames() {
		paths = append(paths, m.dir+`\`+name)
	}
	files, good := m.Host.Files, m.dir+`\good`
	m.write(t, good, "x")
	for _, path := range paths {
		_, err := files.Open(path)
		isError(t, "opening "+path, err, winos.ErrInvalidName)
		_, err = files.Create(path, winos.AccessInherit)
		isError(t, "creating "+path, err, winos.ErrInvalidName)
		_, err = files.Stat(path)
		isError(t, "looking at "+path, err, winos.ErrInvalidName)
		_, err = files.List(path)
		isError(t, "listing "+path, err, winos.ErrInvalidName)
		isError(t, "removing "+path, files.Remove(path), winos.ErrInvalidName)
		isError(t, "making "+path, files.MkdirAll(path, winos.AccessInherit), winos.ErrInvalidName)
		isError(t, "renaming "+path, files.Rename(path, good), winos.ErrInvalidName)
		isError(t, "renaming to "+path, files.Rename(good, path), winos.ErrInvalidName)
	}
	if names := m.names(t, m.dir); !slices.Equal(names, []string{"good"}) {
		t.Errorf("the directory has %q", names)
	}
}

func namesKept(m machine) {
	t := m.t
	names := []string{
		`.wmco`, `..two`, `a b`, `a.b.c`, `CONSOLE`, `COM10`, `COM`, `LPTX`, `nulls`, `aux-1`, `xcon`, `$x`,
		`a;b,c=d+e`, `{}[]()'!@#%^&~`, `ünïcödé`, `日本語`, `😀`,
		strings.Repeat("x", 251), "mcr.microsoft.com",
	}
	for _, name := range names {
		m.write(t, m.dir+`\`+name, name)
	}
	have := m.names(t, m.dir)
	slices.Sort(have)
	slices.Sort(names)
	if !slices.Equal(have, names) {
		t.Errorf("the directory has %q", have)
	}
	for _, name := range names {
		if content := m.read(t, m.dir+`\`+name); content != name {
			t.Errorf("file %q contains %q", name, content)
		}
	}
}

func namesCase(m machine) {
	t := m.t
	files := m.Host.Files
	mkdir(t, m, m.dir+`\MixedCase`)
	m.write(t, m.dir+`\mixedcase\File.TXT`, "one")
	if have := m.read(t, strings.ToUpper(m.dir)+`\MIXEDCASE\FILE.txt`); have != "one" {
		t.Errorf("read %q", have)
	}
	w, err := files.Create(m.dir+`\MIXEDCASE\file.txt`, winos.AccessInherit)
	noError(t, err)
	_, err = w.Write([]byte("two"))
	noError(t, err)
	noError(t, w.Close())
	mkdir(t, m, m.dir+`\MIXEDCASE`)
	if names := m.names(t, m.dir+`\mIXEDcASE`); !slices.Equal(names, []string{"File.TXT"}) {
		t.Errorf("the directory has %q", names)
	}
	if names := m.names(t, m.dir); !slices.Equal(names, []string{"MixedCase"}) {
		t.Errorf("the directory has %q", names)
	}
	if have := m.read(t, m.dir+`\MixedCase\File.TXT`); have != "two" {
		t.Errorf("read %q", have)
	}
	m.write(t, m.dir+`\ÄRGER`, "x")
	if have := m.read(t, m.dir+`\ärger`); have != "x" {
		t.Errorf("read %q", have)
	}
	noError(t, files.Rename(m.dir+`\mixedcase\file.txt`, m.dir+`\mixedcase\FILE.txt`))
	if names := m.names(t, m.dir+`\MixedCase`); !slices.Equal(names, []string{"FILE.txt"}) {
		t.Errorf("after a rename that changes only the case, the directory has %q", names)
	}
	noError(t, files.Remove(m.dir+`\mixedcase\file.TXT`))
}

func namesLong(m machine) {
	t := m.t
	path := m.dir
	for range 5 {
		path += `\` + strings.Repeat("y", 100)
	}
	mkdir(t, m, path)
	m.write(t, path+`\file`, "x")
	if have := m.read(t, path+`\file`); have != "x" {
		t.Errorf("read %q", have)
	}
	if names := m.names(t, path); !slices.Equal(names, []string{"file"}) {
		t.Errorf("the directory has %q", names)
	}
	noError(t, m.Host.Files.RemoveAll(m.dir+`\`+strings.Repeat("y", 100)))
	longest := m.dir + `\` + strings.Repeat("z", 255)
	mkdir(t, m, longest)
	noError(t, m.Host.Files.Remove(longest))
}
