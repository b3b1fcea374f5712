package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// crdDocument is one CRD: decoded for the selection, and as JSON in order to apply exactly the fields that its author
// wrote.
type crdDocument struct {
	crd      *apiextensionsv1.CustomResourceDefinition
	manifest []byte
}

// readCRDs returns the selected CRDs by name.
func readCRDs(options CRDOptions) (map[string]crdDocument, error) {
	files, err := yamlFiles(options.Paths)
	if err != nil {
		return nil, err
	}
	chosen, from := map[string]crdDocument{}, map[string]string{}
	for _, file := range files {
		documents, err := crdsInFile(file, options.Names)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, document := range documents {
			if options.Filter != nil && !options.Filter(document.crd) {
				continue
			}
			name := document.crd.Name
			if other, double := from[name]; double {
				return nil, fmt.Errorf("%s is defined in %s and in %s: choose one with Filter", name, other, file)
			}
			chosen[name], from[name] = document, file
		}
	}
	for _, name := range options.Names {
		if _, found := chosen[name]; !found {
			return nil, fmt.Errorf("%s is not in %v, or Filter doesn't select it", name, options.Paths)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("none chosen of the CRDs in %v", options.Paths)
	}
	return chosen, nil
}

// yamlFiles lists the files at the paths, including the files in folders.
func yamlFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if extension := filepath.Ext(entry.Name()); extension == ".yaml" || extension == ".yml" {
				files = append(files, filepath.Join(path, entry.Name()))
			}
		}
	}
	return files, nil
}

// crdsInFile decodes the CRDs in a file. If names are given, it returns only these CRDs, and doesn't parse documents
// that contain none of the names.
func crdsInFile(path string, names []string) ([]crdDocument, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var documents []crdDocument
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if len(names) > 0 && !mentionsAny(text, names) {
			continue
		}
		document, isCRD, err := decodeCRD(text)
		if err != nil {
			return nil, err
		}
		if isCRD && (len(names) == 0 || slices.Contains(names, document.crd.Name)) {
			documents = append(documents, document)
		}
	}
}

func mentionsAny(text []byte, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return bytes.Contains(text, []byte(name)) })
}

// decodeCRD decodes a YAML document if it is a CRD. It drops the status: some generators write an empty status, and the
// lab must not apply it.
func decodeCRD(text []byte) (document crdDocument, isCRD bool, err error) {
	content, err := yaml.YAMLToJSON(text)
	if err != nil {
		return crdDocument{}, false, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(content, &object); err != nil {
		return crdDocument{}, false, err
	}
	if string(object["kind"]) != `"CustomResourceDefinition"` {
		return crdDocument{}, false, nil
	}
	delete(object, "status")
	document.crd = &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(content, document.crd); err != nil {
		return crdDocument{}, false, err
	}
	document.manifest, err = json.Marshal(object)
	return document, true, err
}
