//go:build linux

package wine_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/wine"
)

// marks returns the beginnings of secrets: private keys and bearer tokens.
func marks() []string { return []string{"PRIVATE KEY-----", "eyJhbGciOi"} }

// On a host, other users must not be able to read a file with a secret. Wine also stores file rights as Linux rights:
// the rights of Administrators become the rights of owner and group, and other users have none. Therefore, this test
// also checks the Linux rights.
func TestA35_NoSecretIsInAFileThatOthersMayRead(t *testing.T) {
	s := shared
	for _, h := range s.Fleet.Hosts {
		m, host := machine(h), windows(t, h)
		var secret int
		var walk func(dir string)
		walk = func(dir string) {
			infos, err := host.Files.List(dir)
			if errors.Is(err, fs.ErrNotExist) {
				return // already deleted: containerd removes incomplete pulls
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range infos {
				path := strings.TrimSuffix(dir, `\`) + `\` + info.Name
				if info.Dir {
					if !strings.EqualFold(path, `C:\windows`) {
						walk(path)
					}
					continue
				}
				if info.Size > 1<<20 {
					continue
				}
				content, err := os.ReadFile(m.Path(path))
				if err != nil {
					continue // already deleted
				}
				for _, mark := range marks() {
					if !bytes.Contains(content, []byte(mark)) {
						continue
					}
					stat, err := os.Stat(m.Path(path))
					if errors.Is(err, fs.ErrNotExist) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					secret++
					if stat.Mode().Perm()&0o007 != 0 || info.Access != winos.AccessAdministrators {
						t.Errorf("%s: %s contains a secret, but has the access %d and the mode %v", h.Name, path,
							info.Access,
							stat.Mode())
					}
				}
			}
		}
		walk(`C:\`)
		if secret < 3 {
			t.Errorf("%s: only %d files with secrets were found", h.Name, secret)
		}
		for _, dir := range []string{contract.DirK, contract.DirKubeletPKI, contract.DirDaemonCerts} {
			if info, err := host.Files.Stat(dir); err != nil || info.Access != winos.AccessAdministrators {
				t.Errorf("%s: %s is %+v, %v", h.Name, dir, info, err)
			}
		}
		left, err := host.Files.List(wine.Home + `\` + contract.RPCDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range left {
			if strings.Contains(f.Name, ".json") {
				t.Errorf("%s: %s was not deleted from the RPC directory", h.Name, f.Name)
			}
		}
	}
}

func TestA35_NoSecretIsInLogsAndProcessLists(t *testing.T) {
	s := shared
	for _, h := range s.Fleet.Hosts {
		m := machine(h)
		logs, err := filepath.Glob(filepath.Join(m.Path(contract.DirLog), "*", "*"))
		if err != nil || len(logs) < 7 {
			t.Fatalf("%s: logs %q, %v", h.Name, logs, err)
		}
		said := map[string][]byte{}
		for _, path := range logs {
			if said[path], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
		processes := m.Processes()
		if len(processes) < 10 {
			t.Errorf("%s: only %d processes were found: %q", h.Name, len(processes), processes)
		}
		said["the process list"] = []byte(strings.Join(processes, "\n"))
		for place, text := range said {
			for _, mark := range marks() {
				if bytes.Contains(text, []byte(mark)) {
					t.Errorf("%s: a secret appears in %s", h.Name, place)
				}
			}
		}
	}
}
