// Package payload describes the binaries of a node and their transport: the manifest, the content-addressed
// directory with the binaries, and the stream with the binaries that a host lacks.
//
// The operator packs, and the daemon unpacks. This package makes no connections.
package payload

import "github.com/windows-nodes/wmco/internal/contract"

// ManifestName is the file in a payload directory that lists the directory's content. Blobs are next to it under
// sha256/<digest>.
const ManifestName = "payload.json"

// Manifest lists the binaries of one payload.
type Manifest struct {
	// Version of the payload, for people. Programs compare digests only.
	Version string `json:"version"`
	// Files lists the binaries. A part that must fit the API server occurs once for each version, newest first.
	Files []File `json:"files"`
	// Missing lists the missing binaries, with the features that are off without them.
	Missing []Missing `json:"missing,omitempty"`
}

// File is one binary.
type File struct {
	// Name is short and unique, such as kubelet.exe.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Source is its origin: a module path and version, or "supplied".
	Source string `json:"source"`
	Size   int64  `json:"size"`
	Digest string `json:"sha256"`
	// Path on the node.
	Path string `json:"path"`
}

// Missing is a binary that this payload lacks.
type Missing struct {
	Name    string  `json:"name"`
	Feature Feature `json:"feature"`
	Reason  string  `json:"reason"`
}

// Blob returns the file as a blob.
func (f File) Blob() contract.Blob { return contract.Blob{Digest: f.Digest, Size: f.Size} }
