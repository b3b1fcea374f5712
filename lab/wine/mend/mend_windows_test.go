package mend_test

import (
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestSocketsLieAtAPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if got := listener.Addr().String(); got != path {
		t.Errorf("the socket has the address %s, want %s", got, path)
	}
	if second, err := new(net.ListenConfig).Listen(t.Context(), "unix", path); err == nil {
		t.Errorf("a second listener also has the address %s", second.Addr())
	}
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	if got := echo(t, path, "hello"); got != "hello" {
		t.Errorf("the server answers %q", got)
	}
	if err = listener.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path); err == nil {
		t.Errorf("after Close, a connection to %s succeeded", conn.RemoteAddr())
	}
}

// At its start, kubelet removes all sockets in a directory, including sockets that remain after it was killed. A
// remaining socket must be recognized as a socket.
func TestASocketThatIsLeftIsKnownForOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	for range 2 {
		for _, ask := range []func(string) (fs.FileInfo, error){os.Stat, os.Lstat} {
			if info, err := ask(path); err != nil || info.Mode()&fs.ModeSocket == 0 {
				t.Errorf("the file is %v, %v", info, err)
			}
		}
		_ = listener.Close()
	}
	if err = os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	again, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

func echo(t *testing.T, path, text string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err = io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(text))
	if _, err = io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// kubelet replaces the link to its current certificate in this way.
func TestALinkToAFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	current, updated := filepath.Join(dir, "current.pem"), filepath.Join(dir, "updated.pem")
	for _, name := range []string{"first.pem", "second.pem"} {
		target := filepath.Join(dir, name)
		if err := os.WriteFile(target, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, updated); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(current); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Rename(updated, current); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(current)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Fatalf("the new file is %v, %v; want a link", info.Mode(), err)
		}
		if content, err := os.ReadFile(current); err != nil || string(content) != name {
			t.Errorf("the linked file contains %q, %v; want %q", content, err, name)
		}
		if info, err = os.Lstat(target); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the target of the link is %v, %v", info.Mode(), err)
		}
	}
	if err := os.Symlink(dir, updated); err == nil {
		t.Error("creating a link to a directory succeeded, but it must fail")
	}
}
