package contract

import (
	"encoding/json"
	"fmt"
)

// LatestSecret is in the operator's namespace and holds the revision that was published last, as its own
// ConfigMap and Secret hold it. Daemons watch it, so that a change that hundreds of nodes are told of
// costs none of them a read. It says nothing about who is to have that revision: only a Node does.
const LatestSecret = ServicesSecretPrefix + "latest"

// MemorySecret is in the operator's namespace. It holds what was read last of the WindowsMachineConfig and of the
// objects that facts are read from, which stays in force while one of them is absent.
const MemorySecret = ServicesSecretPrefix + "memory"

// Keys of LatestSecret, beside ConfidentialField.
const (
	latestRevision = "revision"
	latestManifest = "manifest.gz"
)

// maxLatest is how much of a revision fits into one Secret, with room for what else an object has.
const maxLatest = 900 << 10

// Latest is the revision that was published last.
type Latest struct {
	// Revision is its name. Manifest is its ConfigMap's data, and Confidential its Secret's, as it is
	// packed; both are nil when they do not fit into one Secret, so that they have to be read.
	Revision     string
	Manifest     map[string]string
	Confidential []byte
}

// Data is what the Secret holds.
func (l Latest) Data() (map[string][]byte, error) {
	data := map[string][]byte{latestRevision: []byte(l.Revision)}
	text, err := json.Marshal(l.Manifest)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	packed, err := PackConfidential(text)
	if _, tooLarge := AsProblem(err); tooLarge || err == nil && len(packed)+len(l.Confidential) > maxLatest {
		return data, nil
	}
	if err != nil {
		return nil, err
	}
	data[latestManifest], data[ConfidentialField] = packed, l.Confidential
	return data, nil
}

// ParseLatest reads what Data gave. Whether it is what the revision's name stands for is for the reader to
// see, as with the ConfigMap and the Secret of that name.
func ParseLatest(data map[string][]byte) (Latest, error) {
	l := Latest{Revision: string(data[latestRevision])}
	packed, has := data[latestManifest]
	if !has {
		return l, nil
	}
	text, err := UnpackConfidential(packed)
	if err != nil {
		return l, err
	}
	if err = json.Unmarshal(text, &l.Manifest); err != nil {
		return l, NewProblem(ReasonManifestInvalid, "the manifest in Secret %s is not understood", LatestSecret)
	}
	l.Confidential = data[ConfidentialField]
	return l, nil
}
