package winostest

import (
	"bytes"
	"context"
	"io/fs"
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func secretsCases() []testCase {
	return []testCase{
		{name: "what is sealed is unsealed for the same purpose only", run: secretsSealed},
		{name: "what is damaged is not unsealed", run: secretsDamaged},
		{name: "a file is restricted to administrators whatever rights it had", needs: []Ability{FileAccess},
			run: secretsFile},
		{name: "a directory is restricted and what it holds stays", needs: []Ability{FileAccess},
			run: secretsDirectory},
		{name: "what does not exist can not be restricted", run: secretsMissing},
	}
}

func (m machine) seal(t *testing.T, plain []byte, purpose string) []byte {
	t.Helper()
	sealed, err := m.Host.Secrets.Seal(t.Context(), plain, purpose)
	noError(t, err)
	return sealed
}

func secretsSealed(m machine) {
	t := m.t
	for _, plain := range [][]byte{nil, []byte("x"), []byte("a password of somebody's"),
		bytes.Repeat([]byte("long "), 100_000)} {
		sealed := m.seal(t, plain, "one purpose")
		if len(plain) > 8 && bytes.Contains(sealed, plain[:8]) {
			t.Error("the sealed text shows the plain one")
		}
		if again := m.seal(t, plain, "one purpose"); bytes.Equal(sealed, again) {
			t.Error("two seals of one text are equal")
		}
		unsealed, err := m.Host.Secrets.Unseal(t.Context(), sealed, "one purpose")
		noError(t, err)
		if !bytes.Equal(unsealed, plain) {
			t.Errorf("%d bytes came back as %d others", len(plain), len(unsealed))
		}
		_, err = m.Host.Secrets.Unseal(t.Context(), sealed, "another purpose")
		isError(t, "unsealing for another purpose", err, winos.ErrNotSealedHere)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Host.Secrets.Seal(ctx, []byte("x"), "p")
	isError(t, "sealing too late", err, context.Canceled)
}

func secretsDamaged(m machine) {
	t := m.t
	sealed := m.seal(t, []byte("a password of somebody's"), "purpose")
	for name, wrong := range map[string][]byte{
		"nothing":        nil,
		"a plain text":   []byte("a password of somebody's"),
		"a cut":          sealed[:len(sealed)-1],
		"another ending": append(bytes.Clone(sealed[:len(sealed)-1]), sealed[len(sealed)-1]^1),
	} {
		_, err := m.Host.Secrets.Unseal(t.Context(), wrong, "purpose")
		isError(t, "unsealing "+name, err, winos.ErrNotSealedHere)
	}
}

func (m machine) access(t *testing.T, path string) winos.Access {
	t.Helper()
	info, err := m.Host.Files.Stat(path)
	noError(t, err)
	return info.Access
}

func secretsFile(m machine) {
	t := m.t
	path := m.dir + `\loose.txt`
	m.write(t, path, "content")
	if m.access(t, path) != winos.AccessInherit {
		t.Fatal("the file should begin with the rights of its directory")
	}
	for range 2 {
		noError(t, m.Host.Secrets.Restrict(path))
		if m.access(t, path) != winos.AccessAdministrators {
			t.Error("others than administrators may open it")
		}
	}
	if got := m.read(t, path); got != "content" {
		t.Errorf("it holds %q", got)
	}
	noError(t, m.Host.Files.Remove(path))
}

func secretsDirectory(m machine) {
	t := m.t
	dir := m.dir + `\loose`
	mkdir(t, m, dir)
	m.write(t, dir+`\inside.txt`, "content")
	for range 2 {
		noError(t, m.Host.Secrets.Restrict(dir))
		if m.access(t, dir) != winos.AccessAdministrators {
			t.Error("others than administrators may open it")
		}
	}
	if got := m.read(t, dir+`\inside.txt`); got != "content" {
		t.Errorf("what is inside holds %q", got)
	}
	m.write(t, dir+`\new.txt`, "new")
	noError(t, m.Host.Files.RemoveAll(dir))
}

func secretsMissing(m machine) {
	t := m.t
	isError(t, "restricting", m.Host.Secrets.Restrict(m.dir+`\nothing`), fs.ErrNotExist)
}
