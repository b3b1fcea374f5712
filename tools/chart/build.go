package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	namespace = contract.OperatorNamespace
	operator  = "windows-machine-config-operator"
	keep      = "helm.sh/resource-policy" // objects with this annotation stay after helm uninstall
)

//go:embed files/*
var files embed.FS

// stamp is the time of every file, so that the same source gives the same archive.
var stamp = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// build creates the chart of a version from the source tree at root, and saves it in out as a directory and as an
// archive. It returns the archive's path. The parameter image is a repository with or without a digest. If it is empty,
// the chart installs the image in config/.
func build(root, version, image, out string) (string, error) {
	content, err := contents(root, version, image)
	if err != nil {
		return "", err
	}
	buffered := make([]*archive.BufferedFile, 0, len(content))
	for name, data := range content {
		buffered = append(buffered, &archive.BufferedFile{Name: name, ModTime: stamp, Data: data})
	}
	slices.SortFunc(buffered, func(a, b *archive.BufferedFile) int { return strings.Compare(a.Name, b.Name) })
	chart, err := loader.LoadFiles(buffered)
	if err != nil {
		return "", fmt.Errorf("loading the chart: %w", err)
	}
	if err = os.RemoveAll(filepath.Join(out, chart.Name())); err != nil {
		return "", err
	}
	if err = os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	if err = chartutil.SaveDir(chart, out); err != nil {
		return "", fmt.Errorf("saving the chart: %w", err)
	}
	return chartutil.Save(chart, out)
}

// components writes bootstrap-components.yaml, which clusterctl uses to install the bootstrap provider. The parameter
// image has the same meaning as in build.
func components(root, image, out string) error {
	objects, err := kustomize(filepath.Join(root, "config", "bootstrap"))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, object := range objects {
		one, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "---\n%s", one)
	}
	named := text.Bytes()
	if image != "" {
		if named = imageLine.ReplaceAll(named, []byte("${1}"+image)); bytes.Equal(named, text.Bytes()) {
			return errors.New("config/bootstrap names no image")
		}
	}
	return os.WriteFile(filepath.Join(out, "bootstrap-components.yaml"), named, 0o644) //nolint:gosec // published
}

// imageLine matches the line with the image of the bootstrap provider.
var imageLine = regexp.MustCompile(`(?m)^( +image: )\S+$`)

// contents returns the chart's files by name.
func contents(root, version, image string) (map[string][]byte, error) {
	all := map[string][]byte{"Chart.yaml": fmt.Appendf(nil, header, version, version)}
	for _, name := range []string{"templates/_helpers.tpl", "templates/uninstall.yaml", "templates/NOTES.txt"} {
		data, err := files.ReadFile(path.Join("files", path.Base(name)))
		if err != nil {
			return nil, err
		}
		all[name] = data
	}
	both, err := common(filepath.Join(root, "config", "default"), filepath.Join(root, "config", "kubernetes"))
	if err != nil {
		return nil, err
	}
	defaults := map[string]any{}
	for _, part := range []struct{ directory, only string }{
		{"default", `{{- if include "wmco.openshift" . }}`},
		{"kubernetes", `{{- if not (include "wmco.openshift" .) }}`},
		{"monitoring", `{{- if include "wmco.monitoring" . }}`},
		{"machine-api", `{{- if include "wmco.wanted" (list .Values.machineAPI.enabled "openshift-machine-api") }}`},
		{"cluster-api", `{{- if include "wmco.wanted" (list .Values.clusterAPI.enabled "openshift-cluster-api") }}`},
		{"workload", `{{- if include "wmco.workloadGuard" . }}`},
		{"kubernetes/flannel", `{{- if include "wmco.wanted" (list .Values.flannel.enabled "kube-flannel") }}`},
	} {
		objects, err := kustomize(filepath.Join(root, "config", part.directory))
		if err != nil {
			return nil, err
		}
		for i, object := range objects {
			only := part.only
			switch part.directory {
			case "default":
				if both.has(object) {
					only = condition(object)
				}
			case "kubernetes":
				if both.has(object) {
					continue
				}
			}
			text, err := template(root, object, defaults)
			if err != nil {
				return nil, err
			}
			if only != "" {
				text = only + "\n" + text + "{{- end }}\n"
			}
			name := fmt.Sprintf(
				"templates/%s/%02d-%s.yaml",
				part.directory,
				i,
				strings.ToLower(object["kind"].(string)),
			)
			all[name] = []byte(text)
		}
	}
	if image != "" {
		defaults["image.repository"], defaults["image.digest"], _ = strings.Cut(image, "@")
	}
	if all["values.yaml"], all["values.schema.json"], err = describe(defaults); err != nil {
		return nil, err
	}
	return all, nil
}

const header = `apiVersion: v2
type: application
name: wmco
description: Turns Windows Server machines into nodes of a Kubernetes cluster, OpenShift among them, and keeps them that way
version: %s
appVersion: %q
kubeVersion: ">=1.30.0-0"
home: https://github.com/windows-nodes/wmco
sources: [https://github.com/windows-nodes/wmco]
keywords: [windows, nodes, kubernetes, openshift, okd]
`

// The type shared contains the objects that are the same on every cluster, by kind, namespace and name.
type shared map[string]map[string]any

func (s shared) has(object map[string]any) bool { return reflect.DeepEqual(s[id(object)], object) }

// The function common returns the objects that are equal in two directories.
func common(one, another string) (shared, error) {
	made := [2]shared{{}, {}}
	for i, directory := range []string{one, another} {
		objects, err := kustomize(directory)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			made[i][id(object)] = object
		}
	}
	maps.DeleteFunc(made[0], func(_ string, object map[string]any) bool { return !made[1].has(object) })
	return made[0], nil
}

func id(object map[string]any) string {
	return fmt.Sprint(object["kind"], " ", get(object, []any{"metadata", "namespace"}), "/",
		get(object, []any{"metadata", "name"}))
}

// condition returns the template condition for an object that is the same on every cluster. A value of the chart
// decides whether the condition holds.
func condition(object map[string]any) string {
	switch object["kind"] {
	case "Namespace":
		return "{{- if .Values.namespace.create }}"
	case "RuntimeClass":
		return "{{- if .Values.runtimeClasses.create }}"
	}
	return ""
}

func kustomize(directory string) ([]map[string]any, error) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", directory, err)
	}
	objects := make([]map[string]any, 0, made.Size())
	for _, r := range made.Resources() {
		object, err := r.Map()
		if err != nil {
			return nil, fmt.Errorf("reading the output of kustomize for %s: %w", directory, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// template returns the template of an object. It adds the object's present values to defaults.
func template(root string, object, defaults map[string]any) (string, error) {
	switch object["kind"] {
	case "CustomResourceDefinition", "Namespace":
		if err := set(object, []any{"metadata", "annotations", keep}, "keep"); err != nil {
			return "", err
		}
	case "Deployment":
		if err := parameterise(object, defaults); err != nil {
			return "", err
		}
	}
	if err := mark(object); err != nil {
		return "", err
	}
	data, err := yaml.Marshal(object)
	if err != nil {
		return "", err
	}
	return fill(root, strings.ReplaceAll(string(data), "{{", `{{ "{{" }}`))
}

// componentFields are the fields of the Deployment that a component adds.
var componentFields = [][]any{at(pod, "initContainers"), at(container, "volumeMounts"), at(pod, "volumes")}

// component returns, for each of componentFields, the value that a component of config/ gives the field. image replaces
// the image of the init container.
func component(root, name, image string) ([]any, error) {
	data, err := os.ReadFile(filepath.Join(root, "config", name, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var made struct{ Patches []struct{ Patch string } }
	if err = yaml.Unmarshal(data, &made); err != nil || len(made.Patches) != 1 {
		return nil, fmt.Errorf("config/%s has %d patches: %w", name, len(made.Patches), err)
	}
	patch := map[string]any{}
	if err = yaml.Unmarshal([]byte(made.Patches[0].Patch), &patch); err != nil {
		return nil, fmt.Errorf("reading the patch of config/%s: %w", name, err)
	}
	init, ok := get(patch, at(pod, "initContainers", 0)).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("config/%s adds no init container", name)
	}
	init["image"] = image
	all := make([]any, len(componentFields))
	for i, field := range componentFields {
		if all[i] = get(patch, field); all[i] == nil {
			return nil, fmt.Errorf("config/%s: no field at %v", name, field)
		}
	}
	return all, nil
}

func placeholder(i int) string { return fmt.Sprintf("@@%d@@", i) }

// mark replaces fields of an object with placeholders of values. For the Deployment, see parameterise.
func mark(object map[string]any) error {
	name := get(object, []any{"metadata", "name"})
	for i, v := range values {
		for _, p := range v.places {
			if p.kind != object["kind"] || p.name != name {
				continue
			}
			if get(object, p.field) == nil {
				return fmt.Errorf("%s: no field at %v of %s", v.key, p.field, id(object))
			}
			if err := set(object, p.field, placeholder(i)); err != nil {
				return fmt.Errorf("%s: %w", v.key, err)
			}
		}
	}
	return nil
}

// parameterise replaces fields of the Deployment with placeholders of values.
func parameterise(object, defaults map[string]any) error {
	for i, v := range values {
		if v.field == nil {
			continue
		}
		switch {
		case v.component != "":
			for j, field := range componentFields {
				if err := set(object, field, placeholder(i)+strconv.Itoa(j)); err != nil {
					return fmt.Errorf("%s: %w", v.key, err)
				}
			}
		case v.adds != "":
			if err := set(object, at(v.field, v.adds), placeholder(i)); err != nil {
				return fmt.Errorf("%s: %w", v.key, err)
			}
		case v.appends:
			list, ok := get(object, v.field).([]any)
			if !ok {
				return fmt.Errorf("%s: no list at %v", v.key, v.field)
			}
			if err := set(object, v.field, append(list, placeholder(i))); err != nil {
				return fmt.Errorf("%s: %w", v.key, err)
			}
		default:
			if defaults[v.key] = get(object, v.field); defaults[v.key] == nil {
				return fmt.Errorf("%s: no field at %v", v.key, v.field)
			}
			if err := set(object, v.field, placeholder(i)); err != nil {
				return fmt.Errorf("%s: %w", v.key, err)
			}
		}
	}
	image, ok := defaults["image.repository"].(string)
	if !ok {
		return errors.New("the Deployment names no image")
	}
	defaults["image.repository"] = image[:strings.LastIndexByte(image, ':')]
	return nil
}

// fill replaces placeholders with template expressions. They render values as JSON, which is also valid YAML.
func fill(root, text string) (string, error) {
	for i, v := range values {
		if v.component != "" {
			const image = "@@image@@"
			fields, err := component(root, v.component, image)
			if err != nil {
				return "", err
			}
			for j, field := range fields {
				data, err := json.Marshal(field)
				if err != nil {
					return "", err
				}
				with := strings.ReplaceAll(string(data), `"`+image+`"`, "{{ toJson . }}")
				text = regexp.MustCompile(`(?m)^( *)(\w+): '?`+regexp.QuoteMeta(placeholder(i)+strconv.Itoa(j))+`'?$`).
					ReplaceAllString(text, "{{- with .Values."+v.key+" }}\n${1}${2}: "+with+"\n{{- end }}")
			}
			continue
		}
		mark := "'?" + regexp.QuoteMeta(placeholder(i)) + "'?"
		expression := v.expression
		if expression == "" {
			expression = "{{ toJson .Values." + v.key + " }}"
		}
		var pattern, with string
		switch {
		case v.adds != "":
			pattern, with = `(?m)^( *)`+v.adds+`: `+mark+`$`,
				"{{- with .Values."+v.key+" }}\n${1}"+v.adds+": {{ toJson . }}\n{{- end }}"
		case v.appends:
			pattern, with = `(?m)^( *)- `+mark+`$`, "{{- range .Values."+v.key+" }}\n${1}- {{ toJson . }}\n{{- end }}"
		default:
			pattern, with = mark, strings.ReplaceAll(expression, "$", "$$")
		}
		text = regexp.MustCompile(pattern).ReplaceAllString(text, with)
	}
	return text, nil
}

// get returns the object at a path of keys and indexes, or nil.
func get(object any, path []any) any {
	for _, step := range path {
		switch at := object.(type) {
		case map[string]any:
			key, _ := step.(string)
			object = at[key]
		case []any:
			i, ok := step.(int)
			if !ok || i >= len(at) {
				return nil
			}
			object = at[i]
		default:
			return nil
		}
	}
	return object
}

// set sets an object at a path. The last step of the path is a key. Missing maps on the way are created.
func set(object map[string]any, path []any, what any) error {
	last := len(path) - 1
	parent := get(object, path[:last])
	key, ok := path[last].(string)
	if parent == nil && ok && last > 0 {
		parent = map[string]any{}
		if err := set(object, path[:last], parent); err != nil {
			return err
		}
	}
	into, isMap := parent.(map[string]any)
	if !ok || !isMap {
		return fmt.Errorf("no field at %v", path)
	}
	into[key] = what
	return nil
}

// describe returns values.yaml, with a description of each value, and the schema that Helm checks values with.
func describe(defaults map[string]any) (text, rules []byte, err error) {
	lines := []string{"# Made from config/ by `make chart`. `helm show values` prints this file."}
	properties := schema{
		"global": schema{"type": "object", "description": "Set by Helm if the chart is a dependency of another chart."},
	}
	group := ""
	for _, v := range values {
		value, ok := defaults[v.key]
		if !ok {
			value = v.otherwise
		}
		data, err := json.Marshal(value)
		if err != nil {
			return nil, nil, err
		}
		described := schema{"description": v.about, "default": value}
		for k, rule := range v.schema {
			described[k] = rule
		}
		first, rest, nested := strings.Cut(v.key, ".")
		if !nested {
			lines, group = append(lines, "# "+v.about, fmt.Sprintf("%s: %s", v.key, data)), ""
			properties[v.key] = described
			continue
		}
		if group != first {
			lines, group = append(lines, first+":"), first
			properties[first] = schema{"type": "object", "additionalProperties": false, "properties": schema{}}
		}
		lines = append(lines, "  # "+v.about, fmt.Sprintf("  %s: %s", rest, data))
		properties[first].(schema)["properties"].(schema)[rest] = described
	}
	rules, err = json.MarshalIndent(schema{"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type": "object", "additionalProperties": false, "properties": properties}, "", "  ")
	return []byte(strings.Join(lines, "\n") + "\n"), rules, err
}
