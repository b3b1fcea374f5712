package main

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// skips returns the range of versions that OLM may upgrade to this version directly: up to two minor versions back,
// see docs/upgrades.md. If the major version changes, the replaced version determines the last minor version of the
// old major version. Without a replaced version, OLM doesn't upgrade from another major version. Both arguments are
// semantic versions.
func skips(to, replaced string) string {
	v := version.MustParseSemantic(to)
	major, minor := v.Major(), v.Minor()
	if minor < 2 && replaced != "" {
		if last := version.MustParseSemantic(replaced); last.Major() < major {
			major, minor = last.Major(), last.Minor()+1+minor // as if the old major version had continued
		}
	}
	return fmt.Sprintf(">=%d.%d.0-0 <%s", major, max(minor, 2)-2, to)
}

// catalog returns a file-based catalog that contains only this bundle. It needs no earlier bundles: see skips.
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
	entry := map[string]any{"name": b.name(), "skipRange": skips(b.version, b.replaces)}
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
