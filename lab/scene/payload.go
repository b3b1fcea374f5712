package scene

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/windows-nodes/wmco/internal/payload"
)

// payloadVersion is the version of the stand-ins.
const payloadVersion = "v1.36.3"

// WritePayload fills dir with a payload of small stand-ins that lacks the named parts.
func WritePayload(dir string, without ...string) error {
	return assemble(dir, payloadVersion, nil, without)
}

// CompletePayload fills dir with the payload at path and, where that lacks parts, with their stand-ins.
func CompletePayload(dir, path string) error {
	given, err := payload.OpenDir(path)
	if err != nil {
		return fmt.Errorf("reading the payload (make payload builds one): %w", err)
	}
	return assemble(dir, given.Manifest().Version, given, nil)
}

// assemble takes each part from the given payload, if there is one that has it, and otherwise from the stand-ins.
func assemble(dir, version string, given *payload.Dir, without []string) (err error) {
	temporary, err := os.MkdirTemp("", "wmco-payload-")
	if err != nil {
		return fmt.Errorf("making a directory for stand-ins: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if _, err = payload.WriteStandins(temporary, payloadVersion); err != nil {
		return fmt.Errorf("writing the stand-ins: %w", err)
	}
	standins, err := payload.OpenDir(temporary)
	if err != nil {
		return fmt.Errorf("reading the stand-ins: %w", err)
	}
	builder, err := payload.NewBuilder(dir)
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

// add copies a part from the first source that has it.
func add(builder *payload.Builder, name string, sources ...*payload.Dir) (err error) {
	for _, source := range sources {
		if source == nil {
			continue
		}
		f, ok := source.Manifest().Named(name)
		if !ok {
			continue
		}
		blob, _ := source.Blob(f.Digest)
		content, err := blob.Open()
		if err != nil {
			return fmt.Errorf("opening %s: %w", name, err)
		}
		_, err = builder.Add(f.Name, f.Version, f.Source, content)
		return errors.Join(err, content.Close())
	}
	return fmt.Errorf("part %s is nowhere", name)
}
