package scene

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

// payloadVersion is the version of the stand-ins.
const payloadVersion = "v1.36.3"

// WritePayload fills dir with a payload of small stand-ins, without the named parts.
func WritePayload(dir string, without ...string) error {
	return assemble(dir, payloadVersion, nil, without)
}

// CompletePayload fills dir with the payload at path, and with stand-ins for its missing parts.
func CompletePayload(dir, path string) error {
	given, err := payload.OpenDir(path)
	if err != nil {
		return fmt.Errorf("reading the payload (make payload builds one): %w", err)
	}
	return assemble(dir, given.Manifest().Version, given, nil)
}

// assemble takes each part from the given payload if it contains the part, and otherwise from the stand-ins.
func assemble(dir, version string, given *payload.Dir, without []string) (err error) {
	temporary, err := os.MkdirTemp("", "wmco-payload-")
	if err != nil {
		return fmt.Errorf("making a directory for stand-ins: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if _, err = assembly.WriteStandins(temporary, payloadVersion); err != nil {
		return fmt.Errorf("writing the stand-ins: %w", err)
	}
	standins, err := payload.OpenDir(temporary)
	if err != nil {
		return fmt.Errorf("reading the stand-ins: %w", err)
	}
	builder, err := assembly.NewBuilder(dir)
	if err != nil {
		return err
	}
	for _, part := range payload.Parts() {
		if slices.Contains(without, part.Name) {
			builder.Lacks(part.Name, "left out")
			continue
		}
		if err = add(builder, part.Name, given, standins); err != nil {
			return err
		}
	}
	_, err = builder.Finish(version)
	return err
}

// add copies all versions of a part from the first source that contains it.
func add(builder *assembly.Builder, name string, sources ...*payload.Dir) error {
	for _, source := range sources {
		if source == nil {
			continue
		}
		found := false
		for _, f := range source.Manifest().Files {
			if f.Name != name {
				continue
			}
			if err := addFile(builder, f, source); err != nil {
				return err
			}
			found = true
		}
		if found {
			return nil
		}
	}
	return fmt.Errorf("part %s is nowhere", name)
}

func addFile(builder *assembly.Builder, f payload.File, source *payload.Dir) error {
	blob, _ := source.Blob(f.Digest)
	content, err := blob.Open()
	if err != nil {
		return fmt.Errorf("opening %s: %w", f.Name, err)
	}
	_, err = builder.Add(f.Name, f.Version, f.Source, content)
	return errors.Join(err, content.Close())
}

// Change describes the differences between two payloads.
type Change struct {
	// Versions are the new versions of parts, by name. Each part gets a stand-in of that version.
	Versions map[string]string
	// Beside holds additional versions of parts. Only some parts may occur several times in a payload.
	Beside map[string][]string
	// Stuck parts run and do nothing. Failing parts exit immediately. Both must also be in Versions.
	Stuck, Failing []string
	// Programs are files with the content of parts that are real programs. They must also be in Versions.
	Programs map[string]string
}

// ChangePayload fills dir with a changed copy of the payload at from.
func ChangePayload(dir, from string, change Change) error {
	given, err := payload.OpenDir(from)
	if err != nil {
		return fmt.Errorf("reading the payload to change: %w", err)
	}
	builder, err := assembly.NewBuilder(dir)
	if err != nil {
		return err
	}
	for _, part := range payload.Parts() {
		for _, version := range change.Beside[part.Name] {
			if _, err = builder.Add(part.Name, version, "stand-in", change.standin(part.Name, version)); err != nil {
				return err
			}
		}
		if version, changed := change.Versions[part.Name]; changed {
			content, err := change.content(part.Name, version)
			if err != nil {
				return err
			}
			if _, err = builder.Add(part.Name, version, "stand-in", content); err != nil {
				return err
			}
			continue
		}
		if _, has := given.Manifest().Named(part.Name); !has {
			builder.Lacks(part.Name, "left out")
			continue
		}
		if err = add(builder, part.Name, given); err != nil {
			return err
		}
	}
	version := given.Manifest().Version
	if kubelet, changed := change.Versions[contract.ServiceKubelet+".exe"]; changed {
		version = kubelet
	}
	_, err = builder.Finish(version)
	return err
}

// content returns the content of a changed part.
func (c Change) content(name, version string) (io.Reader, error) {
	path, given := c.Programs[name]
	if !given {
		return c.standin(name, version), nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the new %s: %w", name, err)
	}
	return bytes.NewReader(content), nil
}

// standin returns the content of a changed part: the header that programs.go evaluates, and random bytes, so that the
// sizes of transfers are realistic.
func (c Change) standin(name, version string) io.Reader {
	mark := "stand-in, not a program"
	switch {
	case slices.Contains(c.Stuck, name):
		mark = markStuck
	case slices.Contains(c.Failing, name):
		mark = markFailing
	}
	head := fmt.Sprintf("MZ\n%s\n%s\n%s\n", name, version, mark)
	noise := make([]byte, changedNoise)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(head))).Read(noise) // never fails
	return io.MultiReader(strings.NewReader(head), bytes.NewReader(noise))
}

// changedNoise is the number of incompressible bytes in a changed stand-in.
const changedNoise = 3 << 10
