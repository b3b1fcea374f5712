// Command copypayload copies the payload of its image to a directory and verifies the copy. It is the entrypoint of the
// payload image, which runs as an init container of the operator's pod. The directory is a volume that the operator's
// container also mounts. The other programs in the image run only on Windows, so they can't copy the files.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

// source is the directory of the payload in the image.
const source = "/payload"

func main() {
	if err := run(os.Stdout, source, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "copy-payload:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, from string, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("name the directory to copy the payload to, and nothing else")
	}
	manifest, err := assembly.Copy(from, args[0])
	if err != nil {
		return fmt.Errorf("copying the payload from %s to %s: %w", from, args[0], err)
	}
	_, err = fmt.Fprintf(out, "copied payload %s, %d files, to %s\n", manifest.Version, len(manifest.Files), args[0])
	return err
}
