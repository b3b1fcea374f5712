package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

// tree returns the components of a small source tree: one program of the tree itself, and one program that a nested
// module pins.
func tree() []component {
	return []component{
		{Name: payload.NameDaemon, Dir: ".", Package: "./cmd/hello", Stamp: stampDaemon},
		{Name: payload.NameKubelet, Dir: "pins", Package: "example.org/tool/cmd/tool", Module: "example.org/tool",
			Stamp: func(v pinned) map[string]string {
				return map[string]string{"example.org/tool/version.Version": "stamped-as-" + v.plain()}
			}},
	}
}

// program returns the header of a Windows program, which is all that the tool reads.
func program(machine uint16) []byte {
	b := make([]byte, 0x40, 0x200)
	copy(b, "MZ")
	binary.LittleEndian.PutUint32(b[0x3c:], 0x40)
	b = append(b, "PE\x00\x00"...)
	b = binary.LittleEndian.AppendUint16(b, machine)
	b = append(b, make([]byte, 16)...)
	b = binary.LittleEndian.AppendUint16(b, 0x22) // flags: executable, large address aware
	return append(b, make([]byte, 0x100)...)
}

const amd64, arm64 = 0x8664, 0xaa64

func place(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func fill(t *testing.T, o options) (payload.Manifest, string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	o.Root, o.Stdout, o.Stderr = filepath.Join("testdata", "tree"), &stdout, &stderr
	if o.Out == "" {
		o.Out = t.TempDir()
	}
	if err := run(t.Context(), o); err != nil {
		return payload.Manifest{}, stdout.String() + stderr.String(), err
	}
	d, err := payload.OpenDir(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = assembly.Copy(o.Out, t.TempDir()); err != nil { // Copy verifies the payload
		t.Error(err)
	}
	return d.Manifest(), stdout.String(), nil
}

func TestPayloadIsBuiltTakenAndFoundLacking(t *testing.T) {
	t.Parallel()
	out, supplied := t.TempDir(), t.TempDir()
	place(t, filepath.Join(supplied, payload.NameCSIProxy), program(amd64))
	place(t, filepath.Join(supplied, payload.NameCSIProxy+".version"), []byte("v1.2.1\n"))
	place(t, filepath.Join(supplied, payload.NameHybridOverlay), program(amd64))
	place(t, filepath.Join(supplied, "README.md"), []byte("where these come from"))
	m, printed, err := fill(t, options{Out: out, Supplied: supplied, Version: "1.0.0", Components: tree()})
	if err != nil {
		t.Fatal(err)
	}
	type line struct{ Name, Version, Source string }
	var got []line
	for _, f := range m.Files {
		got = append(got, line{f.Name, f.Version, f.Source})
	}
	want := []line{
		{payload.NameDaemon, "1.0.0", "this source tree"},
		{payload.NameKubelet, "v1.2.3", "example.org/tool@v1.2.3"},
		{payload.NameHybridOverlay, "unknown", "supplied"},
		{payload.NameCSIProxy, "v1.2.1", "supplied"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the payload's content differs:\n%s", diff)
	}
	if len(m.Missing) != len(payload.Parts())-len(want) {
		t.Errorf("%d parts are missing", len(m.Missing))
	}
	for _, words := range []string{"building kubelet.exe", "taking csi-proxy.exe",
		"missing azure-cloud-node-manager.exe", "off without it: cloud node manager on Azure", "No host can join"} {
		if !strings.Contains(printed, words) {
			t.Errorf("the output lacks %q:\n%s", words, printed)
		}
	}
	for name, words := range map[string]string{payload.NameDaemon: "1.0.0", payload.NameKubelet: "stamped-as-1.2.3"} {
		f, _ := m.Named(name)
		content, err := os.ReadFile(filepath.Join(out, "sha256", f.Digest))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(content, []byte(words)) {
			t.Errorf("program %s does not contain its version", name)
		}
	}
	notices, err := os.ReadFile(filepath.Join(out, noticesName))
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"in kubelet.exe", "You may use this tool as you like.", "Go standard library@go1."} {
		if !bytes.Contains(notices, []byte(words)) {
			t.Errorf("the notices lack %q", words)
		}
	}
}

// The same source must give the same bytes, so that nodes don't download an unchanged program again.
func TestPayloadIsReproducible(t *testing.T) {
	t.Parallel()
	first, _, err := fill(t, options{Version: "1.0.0", Components: tree()})
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := fill(t, options{Version: "1.0.0", Components: tree()})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
}

func TestWhatIsSuppliedIsNotBuilt(t *testing.T) {
	t.Parallel()
	supplied := t.TempDir()
	place(t, filepath.Join(supplied, payload.NameKubelet), program(amd64))
	m, printed, err := fill(t, options{Supplied: supplied, Version: "1.0.0", Components: tree()[1:]})
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := m.Named(payload.NameKubelet); f.Source != "supplied" ||
		strings.Contains(printed, "building kubelet.exe") {
		t.Errorf("the source of kubelet.exe is %q:\n%s", f.Source, printed)
	}
}

func TestPayloadRefuses(t *testing.T) {
	t.Parallel()
	broken := tree()[:1]
	broken[0].Package = "./cmd/nothing"
	unpinned := tree()[1:]
	unpinned[0].Module = "example.org/other"
	library := program(amd64)
	library[0x40+4+18+1] |= 0x20
	cases := map[string]struct {
		name       string
		content    []byte
		components []component
		says       string
	}{
		"a supplied file whose name is no part":    {"csi_proxy.exe", program(amd64), nil, "csi_proxy.exe"},
		"a supplied program for another processor": {payload.NameCSIProxy, program(arm64), nil, "amd64"},
		"a supplied library":                       {payload.NameCSIProxy, library, nil, "not a program"},
		"a supplied script": {payload.NameCSIProxy, []byte("#!/bin/sh\n"), nil,
			"Windows program"},
		"an empty supplied file":        {payload.NameCSIProxy, nil, nil, "Windows program"},
		"a program that does not build": {"README.md", nil, broken, "building windows-instance-config-daemon.exe"},
		"a module that is not pinned":   {"README.md", nil, unpinned, "example.org/other"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			supplied := t.TempDir()
			place(t, filepath.Join(supplied, c.name), c.content)
			_, printed, err := fill(t, options{Supplied: supplied, Version: "1.0.0", Components: c.components})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v, want %q\n%s", err, c.says, printed)
			}
		})
	}
}

func TestCommandLineIsUnderstood(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"an unknown flag":                  {"--wrong"},
		"a word too many":                  {"--version", "1", "more"},
		"a supplied directory that is not": {"--supplied", filepath.Join("testdata", "nowhere")},
	} {
		if err := command(t.Context(), args, new(bytes.Buffer), new(bytes.Buffer)); err == nil {
			t.Errorf("the file %s was accepted, but it must be refused", name)
		}
	}
}

func TestEveryBuiltComponentIsAPart(t *testing.T) {
	t.Parallel()
	minors, err := minorsIn(filepath.Join("..", ".."), allMinors)
	if err != nil {
		t.Fatal(err)
	}
	seen, from := map[string]bool{}, map[string]bool{}
	for _, c := range components(minors) {
		if part, known := payload.PartNamed(c.Name); !known || seen[c.Name] && !part.Skewed || from[c.Name+c.Dir] {
			t.Errorf("component %s is not a part of the payload, or it is built twice", c.Name)
		}
		seen[c.Name], from[c.Name+c.Dir] = true, true
		mod, err := os.ReadFile(filepath.Join("..", "..", c.Dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if c.Module != "" && !bytes.Contains(mod, []byte(c.Package+"\n")) {
			t.Errorf("%s/go.mod does not name the tool %s", c.Dir, c.Package)
		}
		if strings.Contains(linkerFlags(c.Stamp(pinned{Version: "v1.36.3"})), " v1.36.3 ") {
			t.Errorf("the linker flags of %s contain the version outside a variable", c.Name)
		}
	}
	for _, p := range payload.Parts() {
		if p.Required && !seen[p.Name] {
			t.Errorf("the required part %s is not built", p.Name)
		}
	}
}
