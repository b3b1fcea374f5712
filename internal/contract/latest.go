package contract

import (
	"encoding/json"
	"fmt"
)

// LatestSecret is a Secret in the operator's namespace with the latest published revision: the data of the revision's
// ConfigMap and Secret. Daemons watch LatestSecret, so that hundreds of nodes get a change without requests.
// LatestSecret doesn't assign the revision to a node: only an annotation of the Node does.
const LatestSecret = ServicesSecretPrefix + "latest"

// MemorySecret is a Secret in the operator's namespace. It contains what the operator last read of the
// WindowsMachineConfig and of the objects with the cluster's settings. While such an object is absent, the operator
// uses this copy.
const MemorySecret = ServicesSecretPrefix + "memory"

const (
	latestRevision = "revision"
	latestManifest = "manifest.gz"
)

// maxLatest is the maximum size of a revision in LatestSecret. It leaves space for the other fields of the object.
const maxLatest = 900 << 10

// Latest is the last published revision.
type Latest struct {
	// Revision is the revision's name. Manifest is the data of its ConfigMap, and Confidential the packed data of its
	// Secret. If they don't fit into one Secret, both are nil, and the daemon reads the two objects.
	Revision     string
	Manifest     map[string]string
	Confidential []byte
}

// Data returns the data of LatestSecret.
func (l Latest) Data() (map[string][]byte, error) {
	data := map[string][]byte{latestRevision: []byte(l.Revision)}
	text, err := json.Marshal(l.Manifest)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	packed, err := Pack(text)
	if _, tooLarge := AsProblem(err); tooLarge || err == nil && len(packed)+len(l.Confidential) > maxLatest {
		return data, nil
	}
	if err != nil {
		return nil, err
	}
	data[latestManifest], data[ConfidentialField] = packed, l.Confidential
	return data, nil
}

// ParseLatest reads the output of Data. The caller must check that the content matches the revision's name.
func ParseLatest(data map[string][]byte) (Latest, error) {
	l := Latest{Revision: string(data[latestRevision])}
	packed, has := data[latestManifest]
	if !has {
		return l, nil
	}
	text, err := Unpack(packed)
	if err != nil {
		return l, err
	}
	if err = json.Unmarshal(text, &l.Manifest); err != nil {
		return l, NewProblem(ReasonManifestInvalid, "the manifest in Secret %s is not understood", LatestSecret)
	}
	l.Confidential = data[ConfidentialField]
	return l, nil
}
