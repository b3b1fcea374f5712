package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Template is one pod template that Find found in an object.
type Template struct {
	Object Object
	// Path is the path of the pod's spec, from the object's root. An example is spec.template.spec.
	Path string
	Spec corev1.PodSpec
}

// Find returns the pod templates in one object of any kind, such as a Pod or a workload. file is the file with the
// object. It is empty for a live object.
func Find(file string, object *unstructured.Unstructured) ([]Template, error) {
	s := search{object: Object{file, object.GetKind(), object.GetNamespace(),
		cmp.Or(object.GetName(), object.GetGenerateName())}}
	err := s.walk(object.Object, "")
	return s.found, err
}

type search struct {
	object Object
	found  []Template
}

// walk searches a value for specs of pods. A spec of a pod is an object with a list of containers that all have names.
func (s *search) walk(value any, path string) error {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			look := s.walk
			if key == "spec" && isPodSpec(inner) {
				look = s.take
			}
			if err := look(inner, join(path, key)); err != nil {
				return err
			}
		}
	case []any:
		for i, item := range value {
			if err := s.walk(item, path+"["+strconv.Itoa(i)+"]"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *search) take(spec any, path string) error {
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
