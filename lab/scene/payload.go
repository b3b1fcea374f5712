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
func WritePayload(dir string, without ...string) (err error) {
	whole, err := os.MkdirTemp("", "wmco-payload-")
	if err != nil {
		return fmt.Errorf("making a directory for the payload: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(whole)) }()
	if _, err = payload.WriteStandins(whole, payloadVersion); err != nil {
		return fmt.Errorf("writing the stand-in payload: %w", err)
	}
	source, err := payload.OpenDir(whole)
	if err != nil {
		return fmt.Errorf("reading the stand-in payload: %w", err)
	}
	builder, err := payload.NewBuilder(dir)
	if err != nil {
		return err
	}
	for _, f := range source.Manifest().Files {
		if slices.Contains(without, f.Name) {
			builder.Lacks(f.Name, "left out")
			continue
		}
		if err = add(builder, source, f); err != nil {
			return err
		}
	}
	_, err = builder.Finish(payloadVersion)
	return err
}

func add(builder *payload.Builder, source *payload.Dir, f payload.File) (err error) {
	blob, _ := source.Blob(f.Digest)
	content, err := blob.Open()
	if err != nil {
		return fmt.Errorf("opening %s: %w", f.Name, err)
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	_, err = builder.Add(f.Name, f.Version, f.Source, content)
	return err
}
