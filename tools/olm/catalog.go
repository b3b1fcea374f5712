package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// skips are the versions from which OLM may go to this one: those of up to two minor versions before,
// as docs/upgrades.md says.
func skips(version string) string {
	parts := strings.SplitN(version, ".", 3)
	minor, _ := strconv.Atoi(parts[1]) // it is a semantic version
	return fmt.Sprintf(">=%s.%d.0-0 <%s", parts[0], max(minor-2, 0), version)
}

// catalog is a file-based catalog with this bundle alone. The bundles before need not be in it: see
// skips.
func (b *bundle) catalog(csv map[string]any) ([]byte, error) {
	icon, err := files.ReadFile("files/icon.svg")
	if err != nil {
		return nil, err
	}
	said, _, err := unstructured.NestedStringMap(csv, "metadata", "annotations")
	if err != nil {
		return nil, err
	}
	labels, _, err := unstructured.NestedStringMap(csv, "metadata", "labels")
	if err != nil {
		return nil, err
	}
	entry := map[string]any{"name": b.name(), "skipRange": skips(b.version)}
	properties := []any{map[string]any{"type": "olm.package",
		"value": map[string]any{"packageName": packageName, "version": b.version}}}
	owned, _, err := unstructured.NestedSlice(csv, "spec", "customresourcedefinitions", "owned")
	if err != nil {
		return nil, err
	}
	for _, o := range owned {
		crd, _ := o.(map[string]any)
		properties = append(properties, map[string]any{"type": "olm.gvk", "value": map[string]any{
			"group": v1alpha1.GroupVersion().Group, "kind": crd["kind"], "version": crd["version"]}})
	}
	spec, _ := csv["spec"].(map[string]any)
	properties = append(properties, map[string]any{"type": "olm.csv.metadata", "value": map[string]any{
		"annotations": said, "displayName": spec["displayName"], "description": spec["description"],
		"installModes": spec["installModes"], "keywords": spec["keywords"], "links": spec["links"],
		"maintainers": spec["maintainers"], "maturity": spec["maturity"], "minKubeVersion": spec["minKubeVersion"],
		"provider": spec["provider"], "crdDescriptions": spec["customresourcedefinitions"], "labels": labels,
	}})
	related, _ := spec["relatedImages"].([]any)
	var text bytes.Buffer
	for _, blob := range []map[string]any{
		{"schema": "olm.package", "name": packageName, "defaultChannel": channel,
			"description": said["description"], "icon": map[string]any{"mediatype": "image/svg+xml",
				"base64data": base64.StdEncoding.EncodeToString(icon)}},
		{"schema": "olm.channel", "package": packageName, "name": channel, "entries": []any{entry}},
		{"schema": "olm.bundle", "package": packageName, "name": b.name(), "image": b.bundleImage, "properties": properties,
			"relatedImages": append([]any{map[string]any{"name": "", "image": b.bundleImage}}, related...)},
	} {
		data, err := yaml.Marshal(blob)
		if err != nil {
			return nil, err
		}
		text.WriteString("---\n")
		text.Write(data)
	}
	return text.Bytes(), nil
}
