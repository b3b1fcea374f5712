// Package payload describes the binaries of a node, and how they get to the node. A manifest lists the binaries. A
// directory contains the manifest and the binaries, which are named by their digests. A stream contains the binaries
// that a host lacks.
//
// The operator packs streams, and the daemon unpacks them. This package opens no connections.
package payload

import "github.com/windows-nodes/wmco/internal/contract"

// ManifestName is the manifest's name in a payload directory. The blobs are in sha256/<digest> there.
const ManifestName = "payload.json"

// Manifest lists the binaries of one payload.
type Manifest struct {
	// Version is the version of the payload. It is for people only: programs compare digests.
	Version string `json:"version"`
	// Files lists the binaries. If a part must fit the API server, the list may contain several versions of it, the
	// newest first.
	Files []File `json:"files"`
	// Missing lists the binaries that the payload lacks, and the features that don't work without them.
	Missing []Missing `json:"missing,omitempty"`
}

// File is one binary.
type File struct {
	// Name is short and unique, such as kubelet.exe.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Source says where the binary comes from: a module path and a version, or "supplied".
	Source string `json:"source"`
	Size   int64  `json:"size"`
	Digest string `json:"sha256"`
	Path   string `json:"path"`
}

// Missing is a binary that the payload lacks.
type Missing struct {
	Name    string  `json:"name"`
	Feature Feature `json:"feature"`
	Reason  string  `json:"reason"`
}

// Blob returns the file as a blob.
func (f File) Blob() contract.Blob { return contract.Blob{Digest: f.Digest, Size: f.Size} }
