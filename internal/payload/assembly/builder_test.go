package assembly

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

func standins(t *testing.T) (string, payload.Manifest) {
	t.Helper()
	dir := t.TempDir()
	m, err := WriteStandins(dir, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func TestStandinsMakeACompletePayload(t *testing.T) {
	t.Parallel()
	dir, m := standins(t)
	d, err := payload.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, d.Manifest()); diff != "" {
		t.Errorf("the payload that was read is different:\n%s", diff)
	}
	if err = m.Joinable(); err != nil || len(m.Missing) != 0 {
		t.Errorf("the test payload is incomplete: %v, %v", err, m.Missing)
	}
	if len(m.Files) != len(payload.Parts()) || len(m.Blobs()) != len(payload.Parts()) {
		t.Errorf("%d files with %d blobs, want %d of each", len(m.Files), len(m.Blobs()), len(payload.Parts()))
	}
	for _, f := range m.Files {
		b, found := d.Blob(f.Digest)
		if !found {
			t.Fatalf("%s has no blob", f.Name)
		}
		content := read(t, b)
		if !strings.HasPrefix(content, "MZ\n"+f.Name+"\n1.0.0\n") || int64(len(content)) != f.Size {
			t.Errorf("%s starts with %q and has %d bytes", f.Name, content[:min(40, len(content))], len(content))
		}
	}
}

func read(t *testing.T, b payload.Blob) string {
	t.Helper()
	r, err := b.Open()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Close(); err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestStandinsAreTheSameEveryTimeAndDifferByVersion(t *testing.T) {
	t.Parallel()
	dir, first := standins(t)
	_, second := standins(t)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	next, err := WriteStandins(dir, "2.0.0")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range next.Files {
		if f.Digest == first.Files[i].Digest {
			t.Errorf("%s is the same in two versions", f.Name)
		}
	}
	left, err := os.ReadDir(payload.BlobPath(dir, ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != len(next.Files) {
		t.Errorf("%d blobs of %d exist: the older payload was not removed", len(left), len(next.Files))
	}
}

func TestADirectoryHasTheBlobsOfItsManifest(t *testing.T) {
	t.Parallel()
	dir, m := standins(t)
	d, err := payload.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := d.Select(m.Blobs())
	if err != nil {
		t.Fatal(err)
	}
	if len(blobs) != len(m.Files) {
		t.Errorf("%d blobs of %d files", len(blobs), len(m.Files))
	}
	if _, err = d.Select([]contract.Blob{{Digest: strings.Repeat("0", 64)}}); err == nil {
		t.Error("a missing blob is selected")
	}
}

func TestOpenDirRefuses(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("a", 64)
	file := func(change func(f *payload.File)) []payload.File {
		f := payload.File{Name: "kubelet.exe", Digest: digest, Size: 1, Path: `C:\k\kubelet.exe`}
		change(&f)
		return []payload.File{f}
	}
	same := func(*payload.File) {}
	cases := map[string]struct {
		text  string
		files []payload.File
		blob  string
	}{
		"a directory without a manifest": {},
		"a manifest that is no JSON":     {text: "{"},
		"a blob that is not there":       {files: file(same)},
		"a blob of another size":         {files: file(same), blob: "xx"},
		"a digest that leads elsewhere":  {files: file(func(f *payload.File) { f.Digest = "../../etc/passwd" })},
		"a digest in capitals":           {files: file(func(f *payload.File) { f.Digest = strings.ToUpper(digest) })},
		"a file without a name":          {files: file(func(f *payload.File) { f.Name = "" })},
		"a name that is a path":          {files: file(func(f *payload.File) { f.Name = `k\kubelet.exe` })},
		"a path that is relative":        {files: file(func(f *payload.File) { f.Path = `k\kubelet.exe` })},
		"a path that climbs":             {files: file(func(f *payload.File) { f.Path = `C:\k\..\Windows\x.exe` })},
		"a path to a stream of a file":   {files: file(func(f *payload.File) { f.Path = `C:\k\kubelet.exe:evil` })},
		"a negative size":                {files: file(func(f *payload.File) { f.Size = -1 })},
		"a name that stands there twice": {files: append(file(same),
			file(func(f *payload.File) { f.Path = `C:\k\other.exe`; f.Name = "KUBELET.exe" })...)},
		"a path that stands there twice": {files: append(file(same),
			file(func(f *payload.File) { f.Path = `c:\K\kubelet.exe`; f.Name = "other.exe" })...)},
		"a digest that has two sizes": {files: append(file(same),
			payload.File{Name: "other.exe", Digest: digest, Size: 2, Path: `C:\k\other.exe`})},
		"a path with an empty part in it": {files: file(func(f *payload.File) { f.Path = `C:\k\\kubelet.exe` })},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.files != nil {
				text, err := json.Marshal(payload.Manifest{Files: c.files})
				if err != nil {
					t.Fatal(err)
				}
				c.text = string(text)
			}
			if c.text != "" {
				place(t, filepath.Join(dir, payload.ManifestName), c.text)
			}
			if c.blob != "" {
				place(t, payload.BlobPath(dir, digest), c.blob)
			}
			_, err := payload.OpenDir(dir)
			problem, found := contract.AsProblem(err)
			if !found || problem.Reason != contract.ReasonPayloadMissing {
				t.Errorf("returned %v, want PayloadMissing", err)
			}
		})
	}
}

func place(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The init container of the operator's pod copies the payload with this function. If the pod's sandbox is created
// again, the init container copies the payload again.
func TestA61_ACopyIsTheSamePayloadAlsoAfterAnInterruptedOne(t *testing.T) {
	t.Parallel()
	dir, want := standins(t)
	for name, before := range map[string]func(t *testing.T, to string){
		"an empty directory": func(*testing.T, string) {},
		"an interrupted copy": func(t *testing.T, to string) {
			place(t, payload.BlobPath(to, ".new-1"), "half")
			place(t, payload.BlobPath(to, want.Files[0].Digest), "half")
		},
		"another payload": func(t *testing.T, to string) {
			if _, err := WriteStandins(to, "0.9.0"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := t.TempDir()
			before(t, to)
			copied, err := Copy(dir, to)
			if err != nil {
				t.Fatal(err)
			}
			opened, err := payload.OpenDir(to)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, copied) + cmp.Diff(want, opened.Manifest()); diff != "" {
				t.Errorf("the copy differs:\n%s", diff)
			}
			for _, f := range want.Files {
				if b, _ := opened.Blob(f.Digest); contract.Digest([]byte(read(t, b))) != f.Digest {
					t.Errorf("the content of %s is different", f.Name)
				}
			}
			if left, err := os.ReadDir(payload.BlobPath(to, "")); err != nil || len(left) != len(want.Blobs()) {
				t.Errorf("%d files for %d blobs, %v", len(left), len(want.Blobs()), err)
			}
		})
	}
}

func TestA61_ADamagedPayloadIsNotCopied(t *testing.T) {
	t.Parallel()
	dir, m := standins(t)
	victim, to := m.Files[3], t.TempDir()
	place(t, payload.BlobPath(dir, victim.Digest), strings.Repeat("x", int(victim.Size)))
	_, err := Copy(dir, to)
	problem, found := contract.AsProblem(err)
	if !found || problem.Reason != contract.ReasonPayloadCorrupt || !strings.Contains(err.Error(), victim.Name) {
		t.Errorf("returned %v, want PayloadCorrupt about %s", err, victim.Name)
	}
	if _, err = payload.OpenDir(to); err == nil {
		t.Error("a part of a payload is accepted as complete")
	}
	if _, err = Copy(t.TempDir(), to); err == nil {
		t.Error("a directory without a payload is copied")
	}
}

func TestBuilderSaysWhatIsLacking(t *testing.T) {
	t.Parallel()
	b, err := NewBuilder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range payload.Parts() {
		if p.Name == payload.NameCSIProxy || p.Name == payload.NameKubelet {
			continue
		}
		if _, err = b.Add(p.Name, "v1", "a module", strings.NewReader(p.Name)); err != nil {
			t.Fatal(err)
		}
	}
	b.Lacks(payload.NameCSIProxy, "not supplied")
	m, err := b.Finish("v1")
	if err != nil {
		t.Fatal(err)
	}
	want := []payload.Missing{
		{Name: payload.NameKubelet, Feature: payload.FeatureNode, Reason: "not in the payload"},
		{Name: payload.NameCSIProxy, Feature: payload.FeatureStorage, Reason: "not supplied"},
	}
	if diff := cmp.Diff(want, m.Missing); diff != "" {
		t.Errorf("the missing files are different:\n%s", diff)
	}
	problem, found := contract.AsProblem(m.Joinable())
	if !found || problem.Reason != contract.ReasonPayloadMissing || !strings.Contains(problem.Detail, payload.NameKubelet) ||
		strings.Contains(problem.Detail, payload.NameCSIProxy) {
		t.Errorf("Joinable returned %v, want PayloadMissing about %s only", problem, payload.NameKubelet)
	}
}

func TestBuilderRefusesStrangersAndRepeats(t *testing.T) {
	t.Parallel()
	b, err := NewBuilder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.Add("calc.exe", "v1", "", strings.NewReader("x")); err == nil {
		t.Error("a file that is no part of a payload is added")
	}
	if _, err = b.Add(payload.NameKubelet, "v1", "", strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	if _, err = b.Add(payload.NameKubelet, "v1", "", strings.NewReader("x")); err == nil {
		t.Error("a part is added twice")
	}
}
