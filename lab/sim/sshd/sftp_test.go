package sshd_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"

	"github.com/pkg/sftp"

	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func put(tb testing.TB, client *sftp.Client, path string, content []byte) {
	tb.Helper()
	f, err := client.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := f.ReadFrom(bytes.NewReader(content)); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
}

func get(tb testing.TB, client *sftp.Client, path string) []byte {
	tb.Helper()
	f, err := client.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var content bytes.Buffer
	if _, err := f.WriteTo(&content); err != nil {
		tb.Fatal(err)
	}
	return content.Bytes()
}

func pattern(size int) []byte {
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return content
}

func TestPathsAreThoseOfOpenSSHForWindows(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	client := h.sftp(t)
	if home, err := client.Getwd(); err != nil || home != "/C:/Users/Administrator" {
		t.Fatalf("the home directory is %q, %v", home, err)
	}
	put(t, client, "note.txt", []byte("hello"))
	for _, path := range []string{
		"note.txt", "./note.txt", "../Administrator/note.txt", "/C:/Users/Administrator/note.txt",
		"/c:/Users/Administrator/note.txt",
		"C:/Users/Administrator/note.txt", `C:\Users\Administrator\note.txt`, `..\Administrator\note.txt`,
		"/Users/Administrator/note.txt",
	} {
		if got := string(get(t, client, path)); got != "hello" {
			t.Errorf("%s contains %q", path, got)
		}
	}
	for path, want := range map[string]string{
		".": "/C:/Users/Administrator", "x/../y": "/C:/Users/Administrator/y", "/": "/", "/c:/": "/C:", `C:\k`: "/C:/k",
		"/C:/../../x": "/C:/x",
	} {
		if got, err := client.RealPath(path); err != nil || got != want {
			t.Errorf("the real path of %q is %q, %v; want %q", path, got, err, want)
		}
	}
	drives, err := client.ReadDir("/")
	if err != nil || len(drives) != 1 || drives[0].Name() != "C:" || !drives[0].IsDir() {
		t.Errorf("/ contains %v, %v", drives, err)
	}
	if root, err := client.Stat("/"); err != nil || !root.IsDir() {
		t.Errorf("/ is %v, %v", root, err)
	}
}

func TestFilesAndDirectories(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	client := h.sftp(t)
	if err := client.Mkdir(".wmco"); err != nil {
		t.Fatal(err)
	}
	content := pattern(1<<20 + 7)
	put(t, client, ".wmco/blob", content)
	if !bytes.Equal(get(t, client, ".wmco/blob"), content) {
		t.Error("the content read differs from the content written")
	}
	info, err := client.Stat(".wmco/blob")
	if err != nil || info.Size() != int64(len(content)) || info.IsDir() {
		t.Errorf("the file is %v, %v", info, err)
	}
	names, err := client.ReadDir(".wmco")
	if err != nil || len(names) != 1 || names[0].Name() != "blob" {
		t.Errorf("the directory contains %v, %v", names, err)
	}
	if err := client.Chmod(".wmco/blob", 0o600); err != nil {
		t.Errorf("changing the mode: %v", err)
	}
	if err := client.Truncate(".wmco/blob", 3); err != nil {
		t.Errorf("truncating: %v", err)
	}
	if got := get(t, client, ".wmco/blob"); !bytes.Equal(got, content[:3]) {
		t.Errorf("the truncated file is %v", got)
	}
	if err := client.Remove(".wmco/blob"); err != nil {
		t.Error(err)
	}
	if err := client.RemoveDirectory(".wmco"); err != nil {
		t.Error(err)
	}
	if _, err := client.Stat(".wmco"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	if got := h.Counters().SFTPSessions; got != 1 {
		t.Errorf("%d sessions counted", got)
	}
}

func TestAFileIsPatchedAndReadThroughOneHandle(t *testing.T) {
	t.Parallel()
	client := startHost(t, nil).sftp(t)
	put(t, client, "x", []byte("0123456789"))
	f, err := client.OpenFile("x", os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("ab"), 4); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 10)
	if _, err := f.ReadAt(got, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if string(got) != "0123ab6789" {
		t.Errorf("the file contains %s", got)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// Status codes of SFTP.
const (
	noSuchFile       = 2
	permissionDenied = 3
	failure          = 4
	unsupported      = 8
)

func TestErrorsAreThoseOfOpenSSHForWindows(t *testing.T) {
	t.Parallel()
	open := func(flag int, path string) func(c *sftp.Client) error {
		return func(c *sftp.Client) error {
			f, err := c.OpenFile(path, flag)
			if err == nil {
				err = f.Close()
			}
			return err
		}
	}
	create := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	tests := map[string]struct {
		do   func(c *sftp.Client) error
		code uint32
	}{
		"opening what does not exist":                   {open(os.O_RDONLY, "absent"), noSuchFile},
		"writing what does not exist, without creating": {open(os.O_WRONLY, "absent"), noSuchFile},
		"creating in a directory that does not exist":   {open(create, "absent/x"), noSuchFile},
		"creating a file of a name that is reserved":    {open(create, "reserved|name"), failure},
		"creating what exists, exclusively":             {open(create|os.O_EXCL, "there"), failure},
		"writing to the exe of a running process":       {open(create, "running.exe"), failure},
		"opening what is denied":                        {open(os.O_RDONLY, "secret"), permissionDenied},
		"writing to a full disk": {func(c *sftp.Client) error {
			f, err := c.Create("full")
			if err != nil {
				return err
			}
			_, err = f.Write([]byte("x"))
			return errors.Join(err, f.Close())
		}, failure},
		"renaming onto what exists": {func(c *sftp.Client) error { return c.Rename("other", "there") },
			failure},
		"renaming what does not exist": {func(c *sftp.Client) error { return c.Rename("absent", "new") },
			noSuchFile},
		"replacing a running exe": {func(c *sftp.Client) error {
			return c.PosixRename("other",
				"running.exe")
		}, permissionDenied},
		"removing what does not exist": {func(c *sftp.Client) error { return c.Remove("absent") },
			noSuchFile},
		"removing a running exe": {func(c *sftp.Client) error { return c.Remove("running.exe") },
			permissionDenied},
		"removing a directory that is not empty": {func(c *sftp.Client) error { return c.RemoveDirectory("dir") },
			failure},
		"removing a file as a directory":   {func(c *sftp.Client) error { return c.RemoveDirectory("there") }, failure},
		"making a directory that exists":   {func(c *sftp.Client) error { return c.Mkdir("dir") }, failure},
		"making a directory below nothing": {func(c *sftp.Client) error { return c.Mkdir("absent/x") }, noSuchFile},
		"listing what does not exist": {func(c *sftp.Client) error { _, err := c.ReadDir("absent"); return err },
			noSuchFile},
		"looking at what does not exist": {func(c *sftp.Client) error { _, err := c.Lstat("absent"); return err },
			noSuchFile},
		"making a symbolic link": {func(c *sftp.Client) error { return c.Symlink("there", "link") }, unsupported},
		"making a hard link":     {func(c *sftp.Client) error { return c.Link("there", "link") }, unsupported},
		"reading a link": {func(c *sftp.Client) error { _, err := c.ReadLink("there"); return err },
			unsupported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := startHost(t, func(m *diskMachine, _ *sshd.Settings) {
				running, err := m.Create(`C:\Users\Administrator\running.exe`, 0)
				if err = errors.Join(err, running.Close()); err != nil {
					t.Fatal(err)
				}
			}).sftp(t)
			for _, file := range []string{"there", "other"} {
				put(t, client, file, []byte(file))
			}
			if err := client.MkdirAll("dir/inner"); err != nil {
				t.Fatal(err)
			}
			err := test.do(client)
			if got := codeOf(t, err); got != test.code {
				t.Errorf("the status code is %d, want %d: %v", got, test.code, err)
			}
		})
	}
}

func codeOf(tb testing.TB, err error) uint32 {
	tb.Helper()
	var status *sftp.StatusError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noSuchFile
	case errors.Is(err, fs.ErrPermission):
		return permissionDenied
	case errors.As(err, &status):
		return status.Code
	case err == nil:
		tb.Fatal("the operation succeeded, but it must fail")
	}
	tb.Fatalf("the error is not an SFTP status: %v", err)
	return 0
}

func TestPosixRenameReplaces(t *testing.T) {
	t.Parallel()
	client := startHost(t, nil).sftp(t)
	put(t, client, "old", []byte("old"))
	put(t, client, "new", []byte("new"))
	if err := client.PosixRename("new", "old"); err != nil {
		t.Fatal(err)
	}
	if got := string(get(t, client, "old")); got != "new" {
		t.Errorf("the file contains %s", got)
	}
}

func TestOneByteOfAWriteIsCorrupted(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(_ *diskMachine,
		s *sshd.Settings) {
		s.Faults.Corrupt = &sshd.Corrupt{At: 100_000, Times: 1}
	})
	client := h.sftp(t, sftp.UseConcurrentWrites(true))
	content := pattern(300_000)
	put(t, client, "short", content[:100_000])
	if !bytes.Equal(get(t, client, "short"), content[:100_000]) {
		t.Error("a shorter file was changed")
	}
	put(t, client, "first", content)
	var changed []int
	for i, b := range get(t, client, "first") {
		if b != content[i] {
			changed = append(changed, i)
		}
	}
	if len(changed) != 1 || changed[0] != 100_000 {
		t.Errorf("the changed bytes are at %v", changed)
	}
	put(t, client, "second", content)
	if !bytes.Equal(get(t, client, "second"), content) {
		t.Error("the fault happened more often than requested")
	}
}
