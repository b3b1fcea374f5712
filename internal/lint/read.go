package lint

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Limits of the input. People write manifests, so real manifests are much smaller.
const (
	maxDocument  = 3 << 20
	maxDocuments = 10_000
	maxDepth     = 60
)

// Template is one pod template that Read or Find found in an object.
type Template struct {
	Object Object
	// Path is the path of the pod's spec, from the object's root. An example is spec.template.spec.
	Path string
	Spec corev1.PodSpec
}

// Read returns the pod templates in a manifest. The manifest contains any number of documents in YAML or JSON. Read
// skips objects that have no pod templates. If it can't read a document, it stops and returns an error with the number
// of the document.
func Read(file string, from io.Reader) ([]Template, error) {
	var all []Template
	reader := yaml.NewYAMLReader(bufio.NewReader(io.LimitReader(from, maxDocument*16)))
	for n := 1; n <= maxDocuments; n++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("reading document %d of %s: %w", n, file, err)
		}
		if len(text) > maxDocument {
			return all, fmt.Errorf("reading document %d of %s: larger than %d bytes", n, file, maxDocument)
		}
		var object map[string]any
		if err := sigsyaml.Unmarshal(text, &object); err != nil {
			return all, fmt.Errorf("reading document %d of %s: %w", n, file, err)
		}
		found, err := Find(file, n, object)
		if err != nil {
			return all, fmt.Errorf("reading document %d of %s: %w", n, file, err)
		}
		all = append(all, found...)
	}
	return all, fmt.Errorf("reading %s: more than %d documents", file, maxDocuments)
}

// Find returns the pod templates in one object of any kind, such as a Pod, a workload or a List.
func Find(file string, document int, object map[string]any) ([]Template, error) {
	kind, _ := object["kind"].(string)
	if items, isList := object["items"].([]any); isList {
		var all []Template
		for _, item := range items {
			inner, _ := item.(map[string]any)
			found, err := Find(file, document, inner)
			if err != nil {
				return all, err
			}
			all = append(all, found...)
		}
		return all, nil
	}
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	prefix, _ := metadata["generateName"].(string)
	namespace, _ := metadata["namespace"].(string)
	s := search{object: Object{file, document, kind, namespace, cmp.Or(name, prefix)}}
	err := s.walk(object, "", 0)
	return s.found, err
}

type search struct {
	object Object
	found  []Template
}

// walk searches a value for specs of pods. A spec of a pod is an object with a list of containers that all have names.
func (s *search) walk(value any, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			look := s.walk
			if key == "spec" && isPodSpec(inner) {
				look = s.take
			}
			if err := look(inner, join(path, key), depth+1); err != nil {
				return err
			}
		}
	case []any:
		for i, item := range value {
			if err := s.walk(item, path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *search) take(spec any, path string, _ int) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	t := Template{Object: s.object, Path: path}
	if err := json.Unmarshal(text, &t.Spec); err != nil {
		return fmt.Errorf("reading %s of %s: %w", path, s.object, err)
	}
	s.found = append(s.found, t)
	return nil
}

func isPodSpec(value any) bool {
	spec, _ := value.(map[string]any)
	containers, _ := spec["containers"].([]any)
	isNameless := func(c any) bool {
		container, _ := c.(map[string]any)
		name, _ := container["name"].(string)
		return name == ""
	}
	return len(containers) > 0 && !slices.ContainsFunc(containers, isNameless)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
