package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Keys of a ConfigMap with a services manifest.
const (
	KeyServices        = "services"
	KeyFiles           = "files"
	KeyEnvironment     = "environmentVars"
	KeyWatchedVarNames = "watchedEnvironmentVars"
	// The values of KeyConfidential and KeyConfidentialEnvironment are digests, and the value of KeyPodNetwork is a
	// name, all as plain text. The values of the other keys are JSON.
	KeyConfidential            = "confidential"
	KeyConfidentialEnvironment = "confidentialEnvironment"
	KeyPodNetwork              = "podNetwork"
	KeyDaemon                  = "daemon"
)

// ManifestFromConfigMap reads a services manifest from a ConfigMap's data and checks it with Validate. It ignores
// unknown keys and fields, including names in another case, because another release may have written them. If it
// ignored any, IsRevisionOf returns false for the result. Its errors are *Problem with ReasonManifestInvalid.
func ManifestFromConfigMap(data map[string]string) (Manifest, error) {
	var m Manifest
	targets := map[string]any{
		KeyServices: &m.Services, KeyFiles: &m.Files, KeyEnvironment: &m.EnvironmentVars,
		KeyWatchedVarNames: &m.WatchedEnvironmentVars, KeyDaemon: &m.Daemon,
	}
	texts := m.texts()
	for _, required := range []string{KeyServices, KeyFiles} {
		if _, ok := data[required]; !ok {
			return Manifest{}, NewProblem(ReasonManifestInvalid, "key %s is missing", required)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if text, ok := texts[key]; ok {
			*text = data[key]
			continue
		}
		target, ok := targets[key]
		if !ok {
			continue
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(data[key]), target); err != nil {
			return Manifest{}, NewProblem(ReasonManifestInvalid, "key %s: %s", key, oneLine(err))
		}
	}
	return m, m.Validate()
}

// FilesFromConfigMap reads only the files of a services manifest. So the daemon can fetch the files of another release,
// even if that release's manifest has unknown fields. Use only the path, digest and size of each file, because the
// other fields may be incomplete. Its errors are *Problem with ReasonManifestInvalid.
func FilesFromConfigMap(data map[string]string) ([]File, error) {
	var files []File
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(data[KeyFiles]), &files); err != nil {
		return nil, NewProblem(ReasonManifestInvalid, "key %s: %s", KeyFiles, oneLine(err))
	}
	for _, f := range files {
		if f.Digest != "" && (!IsDigest(f.Digest) || f.Size <= 0) {
			return nil, NewProblem(ReasonManifestInvalid, "file %q has no digest or size that could be one", f.Path)
		}
	}
	return files, nil
}

// Data returns the manifest as a ConfigMap's data, without empty optional keys. Equal manifests give equal data.
func (m Manifest) Data() (map[string]string, error) {
	data := make(map[string]string, 7)
	put := func(key string, value any) error {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return fmt.Errorf("encoding %s of the manifest: %w", key, err)
		}
		data[key] = strings.TrimSuffix(b.String(), "\n")
		return nil
	}
	// A nil slice would be written as null.
	err := errors.Join(put(KeyServices, append([]Service{}, m.Services...)),
		put(KeyFiles, append([]File{}, m.Files...)))
	if len(m.EnvironmentVars) > 0 {
		err = errors.Join(err, put(KeyEnvironment, m.EnvironmentVars))
	}
	if len(m.WatchedEnvironmentVars) > 0 {
		err = errors.Join(err, put(KeyWatchedVarNames, m.WatchedEnvironmentVars))
	}
	if m.Daemon != nil {
		err = errors.Join(err, put(KeyDaemon, m.Daemon))
	}
	if err != nil {
		return nil, err
	}
	for key, text := range m.texts() {
		if *text != "" {
			data[key] = *text
		}
	}
	return data, nil
}

func (m *Manifest) texts() map[string]*string {
	return map[string]*string{KeyConfidential: &m.Confidential,
		KeyConfidentialEnvironment: &m.ConfidentialEnvironment, KeyPodNetwork: &m.PodNetwork}
}

// Digest is the lower-case hex SHA-256 of the manifest's data: equal manifests have equal digests. It is empty only if
// Data fails, which does not happen for manifests that the operator creates.
func (m Manifest) Digest() string {
	data, err := m.Data()
	if err != nil {
		return ""
	}
	return DataDigest(data)
}

// DataDigest is the lower-case hex SHA-256 of a manifest's ConfigMap data. It is part of the revision's name.
func DataDigest(data map[string]string) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(sum, "%s %d\n%s\n", key, len(data[key]), data[key])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
