package assembly

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/windows-nodes/wmco/internal/payload"
)

// standinNoise is how many bytes of a stand-in do not compress, so that transfers of stand-ins have realistic byte
// counts.
const standinNoise = 3 << 10

// WriteStandins fills dir with a payload of small stand-in programs: complete, a few KiB each, the
// same bytes for the same name and version. The lab uses it; a simulated machine knows each program
// by its name. An older payload in dir is replaced.
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

// standin is the content of one stand-in: the magic number of an exe, name and version for people,
// and noise.
func standin(name, version string) io.Reader {
	head := fmt.Sprintf("MZ\n%s\n%s\nstand-in, not a program\n", name, version)
	noise := make([]byte, standinNoise)
	// Read of ChaCha8 never fails.
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(head))).Read(noise)
	return io.MultiReader(bytes.NewReader([]byte(head)), bytes.NewReader(noise))
}
