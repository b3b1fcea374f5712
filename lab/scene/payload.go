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

// payloadVersion is the version of the stand-ins in the initial payload.
const payloadVersion = "v1.36.3"

// WritePayload fills dir with a payload of stand-ins, which are small files. It omits the parts in `without`.
func WritePayload(dir string, without ...string) error {
	return assemble(dir, payloadVersion, nil, without)
}

// CompletePayload fills dir with the parts of the payload at path, and with stand-ins for the parts that this payload
// lacks.
func CompletePayload(dir, path string) error {
	given, err := payload.OpenDir(path)
	if err != nil {
		return fmt.Errorf("reading the payload (make payload builds one): %w", err)
	}
	return assemble(dir, given.Manifest().Version, given, nil)
}

// assemble fills dir with a payload. It takes each part from the given payload. If this payload doesn't contain the
// part, assemble creates a stand-in.
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
	// Versions maps the names of parts to their new versions. Each of these parts gets a new stand-in.
	Versions map[string]string
	// Beside maps the names of parts to versions that the payload contains in addition. Only some parts may have
	// several versions in a payload.
	Beside map[string][]string
	// Stuck are parts that run but do nothing. Failing are parts that exit immediately. These parts must also be in
	// Versions.
	Stuck, Failing []string
	// Programs maps the name of each part that is a real program to the path of its file. These parts must also be in
	// Versions.
	Programs map[string]string
}

// ChangePayload fills dir with a copy of the payload at from, and applies the change to the copy.
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

// standin returns the content of a changed part. It begins with the lines that programs.go reads. Random bytes follow,
// so that transfers have realistic sizes.
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
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(head))).Read(noise) // this Read never fails
	return io.MultiReader(strings.NewReader(head), bytes.NewReader(noise))
}

// changedNoise is the number of incompressible bytes in a changed stand-in.
const changedNoise = 3 << 10
