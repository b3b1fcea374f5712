package assembly

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/windows-nodes/wmco/internal/payload"
)

// standinNoise is the number of incompressible bytes in a stand-in, so that transfers have realistic sizes.
const standinNoise = 3 << 10

// WriteStandins replaces the payload in dir with a complete payload of stand-ins, which are small files instead of
// programs. Each stand-in has a few KiB. Its content depends only on its name and the version. The lab uses stand-ins,
// because its simulated machines recognize each program by its name.
func WriteStandins(dir, version string) (payload.Manifest, error) {
	b, err := NewBuilder(dir)
	if err != nil {
		return payload.Manifest{}, err
	}
	for _, p := range payload.Parts() {
		if _, err = b.Add(p.Name, version, "stand-in", standin(p.Name, version)); err != nil {
			return payload.Manifest{}, err
		}
	}
	return b.Finish(version)
}

// standin returns the content of a stand-in: the magic number of an exe file, the name and version, and noise.
func standin(name, version string) io.Reader {
	head := fmt.Sprintf("MZ\n%s\n%s\nstand-in, not a program\n", name, version)
	noise := make([]byte, standinNoise)
	// Read of a ChaCha8 never fails.
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(head))).Read(noise)
	return io.MultiReader(bytes.NewReader([]byte(head)), bytes.NewReader(noise))
}
