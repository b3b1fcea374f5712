package main

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

// digests returns the digests of all files in a folder.
func digests(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(folder, path))
		sum := sha256.Sum256(content)
		all[path] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unpacked returns a copy of the source in another folder without version control, as users get it from an archive.
func unpacked(t *testing.T) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "go.mod", "go.sum", "LICENSE", "api", "cmd", "config", "internal")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// cloned returns a copy of the source in its own repository. There, the compiler could write the repository's commit
// into a binary.
func cloned(t *testing.T) string {
	t.Helper()
	folder := unpacked(t)
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"},
		{"-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "Source"}} {
		c := exec.CommandContext(t.Context(), "git", append([]string{"-C", folder}, args...)...)
		if output, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args[0], err, output)
		}
	}
	return folder
}

func TestA64_ThePluginIsTheSameFromACloneAndFromAnArchive(t *testing.T) {
	t.Setenv("GOFLAGS", "-buildvcs=auto") // the default of a machine
	var got [2]map[string]string
	for i, source := range []string{cloned(t), unpacked(t)} {
		out := filepath.Join(t.TempDir(), "plugin")
		if err := run(t.Context(), options{root: source, out: out, version: "0.2.0",
			platforms: []string{"linux/amd64"}}); err != nil {
			t.Fatal(err)
		}
		got[i] = digests(t, out)
	}
	for _, name := range []string{"kubectl-windows_linux_amd64", "kubectl-windows_linux_amd64.tar.gz", "windows.yaml"} {
		if first, second := got[0][name], got[1][name]; first == "" || first != second {
			t.Errorf("%s: %q, then %q", name, first, second)
		}
	}
	if len(got[0]) != 3 {
		t.Errorf("there are additional files: %v", got[0])
	}
}

func TestA75_KrewInstallsWhatTheManifestNames(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "plugin")
	if err := os.MkdirAll(out, 0o700); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(out, "kubectl-windows_linux_riscv64.tar.gz")
	if err := os.WriteFile(stale, []byte("of the release before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), options{root: root, out: out, version: "0.2.0", url: "https://example.com/v0.2.0/",
		platforms: []string{"linux/amd64", "windows/amd64"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("files of an earlier run were not removed: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(out, "windows.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []platform
		}
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Spec.Version != "v0.2.0" || len(manifest.Spec.Platforms) != 2 {
		t.Fatalf("%+v", manifest)
	}
	sums := digests(t, out)
	for _, p := range manifest.Spec.Platforms {
		name, found := strings.CutPrefix(p.URI, "https://example.com/v0.2.0/")
		if !found || sums[name] != p.SHA256 {
			t.Errorf("%s has another digest: %s, not %s", p.URI, sums[name], p.SHA256)
		}
		archive := filepath.Join(out, name)
		if p.Selector.MatchLabels["os"] == "windows" {
			expectZip(t, archive, p.Bin)
			continue
		}
		list, err := exec.CommandContext(t.Context(), "tar", "-tvzf", archive).Output()
		if err != nil || !strings.Contains(string(list), "-rwxr-xr-x") || !strings.Contains(string(list), p.Bin) ||
			!strings.Contains(string(list), "LICENSE") {
			t.Errorf("%s: %v\n%s", archive, err, list)
		}
	}
	version, err := exec.CommandContext(t.Context(), filepath.Join(out, "kubectl-windows_linux_amd64"), "--version").Output()
	if err != nil || !strings.Contains(string(version), "0.2.0") {
		t.Errorf("the plugin reports the version %q: %v", version, err)
	}
}

func expectZip(t *testing.T, archive, program string) {
	t.Helper()
	opened, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatalf("%s: %v", archive, err)
	}
	defer opened.Close()
	var names []string
	for _, f := range opened.File {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != program+" LICENSE" || program != "kubectl-windows.exe" {
		t.Errorf("archive %s has the files %s", archive, got)
	}
	if mode := opened.File[0].Mode(); mode.Perm()&0o100 == 0 {
		t.Errorf("%s is not executable: %s", program, mode)
	}
}

func TestA64_TheSameBinaryGivesTheSameArchive(t *testing.T) {
	t.Parallel()
	for _, binary := range []string{"kubectl-windows_darwin_arm64", "kubectl-windows_windows_arm64.exe"} {
		var sums [2]string
		for i := range sums {
			file := filepath.Join(t.TempDir(), binary)
			if err := os.WriteFile(file, []byte("the binary"), 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := pack(file, "https://example.com", []byte("the licence"))
			if err != nil {
				t.Fatal(err)
			}
			sums[i] = p.SHA256 + " " + p.URI
		}
		if sums[0] != sums[1] {
			t.Errorf("%s: %s, then %s", binary, sums[0], sums[1])
		}
	}
}

func TestA75_ArchivesComeFromHTTPS(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "plugin")
	err := run(t.Context(), options{root: root, out: out, version: "0.2.0", url: "ftp://example.com"})
	if err == nil || !strings.Contains(err.Error(), "ftp://example.com") {
		t.Errorf("%v", err)
	}
}
