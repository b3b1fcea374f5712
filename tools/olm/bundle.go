package main

import (
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/olm"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

const (
	packageName = "windows-machine-config-operator"
	channel     = "stable"
)

//go:embed files/*
var files embed.FS

type options struct{ root, version, replaces, payload, image, bundleImage, out string }

var semver = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)

// build writes the directories bundle and catalog.
func build(o options) error {
	for _, version := range []string{o.version, o.replaces} {
		if version != "" && !semver.MatchString(version) {
			return fmt.Errorf("%q is not a version of the form 1.2.3", version)
		}
	}
	objects, err := install(o.root)
	if err != nil {
		return err
	}
	parts, err := olm.Split(objects, contract.OperatorNamespace)
	if err != nil {
		return err
	}
	b := &bundle{options: o, parts: parts}
	if b.oldest, b.newest, err = served(o.payload); err != nil {
		return fmt.Errorf("finding out which clusters the payload of `make payload` supports: %w", err)
	}
	csv, err := b.csv()
	if err != nil {
		return fmt.Errorf("making the ClusterServiceVersion: %w", err)
	}
	content := map[string]any{
		"bundle/manifests/" + packageName + ".clusterserviceversion.yaml": csv,
		"bundle/metadata/annotations.yaml":                                map[string]any{"annotations": b.annotations()},
	}
	for _, object := range b.rest {
		name := fmt.Sprintf("bundle/manifests/%s_%s.yaml", object.GetName(), strings.ToLower(object.GetKind()))
		if content[name] != nil {
			return fmt.Errorf("two objects of the bundle have the name %s", name)
		}
		content[name] = object.Object
	}
	catalog, err := b.catalog(csv)
	if err != nil {
		return fmt.Errorf("making the catalog: %w", err)
	}
	return errors.Join(os.RemoveAll(filepath.Join(o.out, "bundle")), os.RemoveAll(filepath.Join(o.out, "catalog")),
		save(o.out, content), write(filepath.Join(o.out, "catalog/configs", packageName, "catalog.yaml"), catalog))
}

func save(out string, content map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(content)) {
		data, err := yaml.Marshal(content[name])
		if err != nil {
			return err
		}
		if err = write(filepath.Join(out, name), data); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, data []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)) //nolint:gosec // published
}

// annotations describe the bundle. The bundle's image has them as labels.
func (b *bundle) annotations() map[string]string {
	all := map[string]string{
		"operators.operatorframework.io.bundle.mediatype.v1":       "registry+v1",
		"operators.operatorframework.io.bundle.manifests.v1":       "manifests/",
		"operators.operatorframework.io.bundle.metadata.v1":        "metadata/",
		"operators.operatorframework.io.bundle.package.v1":         packageName,
		"operators.operatorframework.io.bundle.channels.v1":        channel,
		"operators.operatorframework.io.bundle.channel.default.v1": channel,
	}
	// "=" means exactly this release. Without it, a version also includes all later releases.
	switch first, last := assembly.OpenShift(b.oldest, b.newest); first {
	case "":
	case last:
		all["com.redhat.openshift.versions"] = "=v" + first
	default:
		all["com.redhat.openshift.versions"] = "v" + first + "-v" + last
	}
	return all
}

// served returns the oldest and the newest minor version of Kubernetes that a payload's kubelets fit.
func served(directory string) (oldest, newest uint, err error) {
	text, err := os.ReadFile(filepath.Join(directory, payload.ManifestName))
	if err != nil {
		return 0, 0, err
	}
	manifest, err := payload.ParseManifest(text)
	if err != nil {
		return 0, 0, err
	}
	var minors []uint
	for _, f := range manifest.Files {
		if f.Name != payload.NameKubelet {
			continue
		}
		v, err := version.ParseGeneric(f.Version)
		if err != nil {
			return 0, 0, fmt.Errorf("kubelet %q: %w", f.Version, err)
		}
		minors = append(minors, v.Minor())
	}
	if len(minors) == 0 {
		return 0, 0, errors.New("the payload has no kubelet")
	}
	return slices.Min(minors), slices.Max(minors) + payload.MaxSkew, nil
}

// install returns all objects of an installation on OpenShift.
func install(root string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, part := range []string{"default", "machine-api", "monitoring", "cluster-api", "workload"} {
		made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
			filepath.Join(root, "config", part))
		if err != nil {
			return nil, fmt.Errorf("building config/%s: %w", part, err)
		}
		for _, r := range made.Resources() {
			object := &unstructured.Unstructured{}
			data, err := r.MarshalJSON()
			if err == nil {
				err = object.UnmarshalJSON(data)
			}
			if err != nil {
				return nil, fmt.Errorf("reading the output of kustomize for config/%s: %w", part, err)
			}
			all = append(all, object)
		}
	}
	return all, nil
}

type bundle struct {
	options
	parts olm.Parts
	// oldest and newest are the minor versions of Kubernetes that the payload supports.
	oldest, newest uint
	// rest are the bundle's objects except the ClusterServiceVersion.
	rest []*unstructured.Unstructured
}

func (b *bundle) name() string { return packageName + ".v" + b.version }

// csv creates the ClusterServiceVersion.
func (b *bundle) csv() (map[string]any, error) {
	base, err := files.ReadFile("files/csv.yaml")
	if err != nil {
		return nil, err
	}
	csv := map[string]any{}
	if err = yaml.UnmarshalStrict(base, &csv); err != nil {
		return nil, err
	}
	var owned []any
	var deployment *appsv1.Deployment
	for _, object := range b.parts.Bundle {
		switch object.GetKind() {
		case "Deployment":
			if deployment, err = b.deployment(object); err != nil {
				return nil, err
			}
			continue
		case "CustomResourceDefinition":
			described, err := describe(object)
			if err != nil {
				return nil, err
			}
			owned = append(owned, described)
		}
		b.rest = append(b.rest, object)
	}
	if deployment == nil {
		return nil, errors.New("config/default has no Deployment")
	}
	image := deployment.Spec.Template.Spec.Containers[0].Image
	examples, namespace, err := b.samples()
	if err != nil {
		return nil, err
	}
	strategy, err := b.strategy(deployment)
	if err != nil {
		return nil, err
	}
	icon, err := files.ReadFile("files/icon.svg")
	if err != nil {
		return nil, err
	}
	metadata, _ := csv["metadata"].(map[string]any)
	spec, _ := csv["spec"].(map[string]any)
	said, _ := metadata["annotations"].(map[string]any)
	metadata["name"], metadata["namespace"] = b.name(), "placeholder"
	said["alm-examples"], said["containerImage"] = examples, image
	said["operatorframework.io/suggested-namespace"] = contract.OperatorNamespace
	said["operatorframework.io/suggested-namespace-template"] = namespace
	spec["version"], spec["install"] = b.version, strategy
	spec["minKubeVersion"] = fmt.Sprintf("1.%d.0", b.oldest)
	spec["icon"] = []any{map[string]any{"mediatype": "image/svg+xml", "base64data": base64.StdEncoding.EncodeToString(icon)}}
	spec["customresourcedefinitions"] = map[string]any{"owned": owned}
	related := []any{map[string]any{"name": packageName, "image": image}}
	for _, c := range deployment.Spec.Template.Spec.InitContainers { // only with config/payload
		related = append(related, map[string]any{"name": packageName + "-" + c.Name, "image": c.Image})
	}
	spec["relatedImages"] = related
	if b.replaces != "" {
		spec["replaces"] = packageName + ".v" + b.replaces
	}
	return csv, nil
}

// deployment returns the operator's Deployment for OLM.
func (b *bundle) deployment(object *unstructured.Unstructured) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d); err != nil {
		return nil, err
	}
	if len(d.Spec.Template.Spec.Containers) != 1 {
		return nil, errors.New("the Deployment must have exactly one container")
	}
	c := &d.Spec.Template.Spec.Containers[0]
	// A flag overrides its environment variable. The bundle sets variables, so that a Subscription can change them.
	for _, arg := range c.Args {
		flag, value, found := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !found {
			return nil, fmt.Errorf("the Deployment's flag %s has no value", arg)
		}
		c.Env = append(c.Env, corev1.EnvVar{Name: olm.Variable(flag), Value: value})
	}
	c.Args = []string{"--olm"}
	if b.image != "" {
		c.Image = b.image
	}
	return d, nil
}

// strategy returns OLM's install strategy: the Deployment and the rights of its ServiceAccount.
func (b *bundle) strategy(d *appsv1.Deployment) (map[string]any, error) {
	cluster, namespaced, err := rightsToApply(b.parts.Operator)
	if err != nil {
		return nil, err
	}
	ownCluster, ownNamespaced, err := rulesOf(b.parts.Own)
	if err != nil {
		return nil, err
	}
	account := d.Spec.Template.Spec.ServiceAccountName
	grants := func(rules ...[]rbacv1.PolicyRule) []any {
		return []any{map[string]any{"serviceAccountName": account, "rules": slices.Concat(rules...)}}
	}
	return map[string]any{"strategy": "deployment", "spec": map[string]any{
		"clusterPermissions": grants(ownCluster, cluster),
		"permissions":        grants(ownNamespaced, namespaced),
		"deployments":        []any{map[string]any{"name": d.Name, "label": d.Labels, "spec": d.Spec}},
	}}, nil
}

// samples returns the examples of our types, and the namespace that the console suggests, both as JSON.
func (b *bundle) samples() (examples, namespace string, err error) {
	var all []any
	for _, name := range []string{"windowsmachineconfig.yaml", "windowsinstance.yaml"} {
		sample, err := read(filepath.Join(b.root, "config/samples", name))
		if err != nil {
			return "", "", err
		}
		all = append(all, sample)
	}
	ns, err := read(filepath.Join(b.root, "config/namespace/namespace.yaml"))
	if err != nil {
		return "", "", err
	}
	first, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return "", "", err
	}
	second, err := json.Marshal(ns)
	return string(first), string(second), err
}

func read(path string) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	if err = yaml.UnmarshalStrict(data, &object); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return object, nil
}

// describe returns the console's description of an owned type and of the fields in its spec.
func describe(crd *unstructured.Unstructured) (map[string]any, error) {
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		return nil, fmt.Errorf("%s has %d versions: %w", crd.GetName(), len(versions), err)
	}
	version, _ := versions[0].(map[string]any)
	schema := []string{"schema", "openAPIV3Schema"}
	about, _, _ := unstructured.NestedString(version, append(schema, "description")...)
	fields, _, err := unstructured.NestedMap(version, append(schema, "properties", "spec", "properties")...)
	if err != nil {
		return nil, err
	}
	var descriptors []any
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field, _ := fields[name].(map[string]any)
		descriptors = append(descriptors, map[string]any{"path": name, "displayName": words(name),
			"description": field["description"]})
	}
	return map[string]any{"name": crd.GetName(), "kind": kind, "version": version["name"], "displayName": words(kind),
		"description": about, "specDescriptors": descriptors}, nil
}

var capital = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// words turns a camel-case name into a title.
func words(name string) string {
	return strings.ToUpper(name[:1]) + capital.ReplaceAllString(name[1:], "$1 $2")
}
