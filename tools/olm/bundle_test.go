package main

import (
	"bytes"
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/olm"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

const (
	root  = "../.."
	image = "registry.example/wmco@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

// makeBundle creates a bundle and a catalog, and returns all files by name.
func makeBundle(t *testing.T, o options) map[string][]byte {
	t.Helper()
	o.root, o.out, o.payload = root, t.TempDir(), cmp.Or(o.payload, payloadOf(t, "v1.36.3"))
	if err := build(o); err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(o.out), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			all[path], err = os.ReadFile(filepath.Join(o.out, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// payloadOf creates a payload with these versions of kubelet.
func payloadOf(t *testing.T, versions ...string) string {
	t.Helper()
	dir := t.TempDir()
	b, err := assembly.NewBuilder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		if _, err = b.Add(payload.NameKubelet, version, "stand-in", strings.NewReader(version)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = b.Finish("0.1.0"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// If no kubelet of the payload fits a cluster, no host can join, so OLM must not offer the operator there.
func TestA66_TheBundleIsForTheClustersThatAKubeletOfThePayloadFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kubelets           []string
		openshift, minimum string
	}{
		{[]string{"v1.36.3"}, "=v5.0", "1.36.0"},
		{[]string{"v1.35.4"}, "v4.22-v5.0", "1.35.0"},
		{[]string{"v1.37.2", "v1.34.4"}, "v4.21-v5.0", "1.34.0"},
		{[]string{"v1.31.9"}, "v4.19-v4.21", "1.31.0"},
	} {
		all := makeBundle(t, options{version: "0.1.0", image: image, payload: payloadOf(t, c.kubelets...)})
		for name, want := range map[string]string{
			"bundle/metadata/annotations.yaml":                                "com.redhat.openshift.versions: " + c.openshift + "\n",
			"bundle/manifests/" + packageName + ".clusterserviceversion.yaml": "\n  minKubeVersion: " + c.minimum + "\n",
			"catalog/configs/" + packageName + "/catalog.yaml":                " minKubeVersion: " + c.minimum + "\n",
		} {
			if !strings.Contains(string(all[name]), want) {
				t.Errorf("with kubelet %v, %s has no %q", c.kubelets, name, want)
			}
		}
	}
	unknown := makeBundle(t, options{version: "0.1.0", image: image, payload: payloadOf(t, "v1.37.2")})
	if text := string(unknown["bundle/metadata/annotations.yaml"]); strings.Contains(text, "openshift.versions") {
		t.Errorf("the bundle is for an unknown release of OpenShift:\n%s", text)
	}
	for _, payload := range []string{payloadOf(t), payloadOf(t, "newest"), t.TempDir()} {
		if err := build(options{root: root, out: t.TempDir(), version: "0.1.0", payload: payload}); err == nil {
			t.Error("a bundle was created although the supported clusters are unknown")
		}
	}
}

func TestA66_TheSameSourceGivesTheSameBundle(t *testing.T) {
	t.Parallel()
	o := options{version: "0.1.0", image: image, bundleImage: "registry.example/bundle:v1"}
	if first, second := makeBundle(t, o), makeBundle(t, o); !reflect.DeepEqual(first, second) {
		t.Error("two runs differ")
	}
}

// OLM can't install some objects, so the bundle lacks them and the operator applies them from its own program. The
// objects that the bundle lacks, and the objects that the operator applies, must be the same.
func TestA66_WhatTheBundleLacksTheOperatorHas(t *testing.T) {
	t.Parallel()
	objects, err := install(root)
	if err != nil {
		t.Fatal(err)
	}
	lacks, err := olm.Split(objects, contract.OperatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	own, err := olm.Manifests(contract.OperatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	has, err := olm.Split(own, contract.OperatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := text(t, lacks.Operator), text(t, has.Operator); a != b {
		t.Errorf("the bundle lacks\n%s\nbut the operator applies\n%s", a, b)
	}
}

func TestA66_RightsNameWhatIsAppliedAndBound(t *testing.T) {
	t.Parallel()
	objects, err := olm.Manifests(contract.OperatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := olm.Split(objects, contract.OperatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	cluster, namespaced, err := rightsToApply(parts.Operator)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range append(slices.Clone(cluster), namespaced...) {
		if creates := slices.Equal(rule.Verbs, []string{"create"}); creates != (len(rule.ResourceNames) == 0) {
			t.Errorf("the right %v on %v has the names %v", rule.Verbs, rule.Resources, rule.ResourceNames)
		}
	}
	binds := func(r rbacv1.PolicyRule) bool { return r.Resources[0] == "clusterroles" && r.Verbs[0] == "bind" }
	i := slices.IndexFunc(cluster, binds)
	if i < 0 || slices.Contains(cluster[i].ResourceNames, "cluster-admin") || len(cluster[i].ResourceNames) != 11 {
		t.Errorf("the rights to bind are %v", cluster)
	}
}

func text(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	data, err := yaml.Marshal(objects)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestA66_TheClusterServiceVersionNamesEveryImageTypeAndRight(t *testing.T) {
	t.Parallel()
	all := makeBundle(t, options{version: "0.1.0", replaces: "0.0.9", image: image, bundleImage: "registry.example/bundle:v1"})
	name := "bundle/manifests/" + packageName + ".clusterserviceversion.yaml"
	csv := map[string]any{}
	if err := yaml.Unmarshal(all[name], &csv); err != nil {
		t.Fatal(err)
	}
	related, _, _ := unstructured.NestedSlice(csv, "spec", "relatedImages")
	for path, data := range all {
		for _, line := range strings.Split(string(data), "\n") {
			if ref, found := strings.CutPrefix(strings.TrimSpace(line), "image: "); found &&
				ref != image && ref != "registry.example/bundle:v1" {
				t.Errorf("%s has the unexpected image %s", path, ref)
			}
		}
	}
	if len(related) != 1 || related[0].(map[string]any)["image"] != image {
		t.Errorf("relatedImages are %v", related)
	}
	if replaces, _, _ := unstructured.NestedString(csv, "spec", "replaces"); replaces != packageName+".v0.0.9" {
		t.Errorf("the bundle replaces %q", replaces)
	}
	deployments, _, _ := unstructured.NestedSlice(csv, "spec", "install", "spec", "deployments")
	containers, _, _ := unstructured.NestedSlice(deployments[0].(map[string]any), "spec", "template", "spec", "containers")
	if args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args"); !slices.Equal(args, []string{"--olm"}) {
		t.Errorf("these settings are flags, which a Subscription can't change: %v", args)
	}
	owned, _, _ := unstructured.NestedSlice(csv, "spec", "customresourcedefinitions", "owned")
	if len(owned) != 2 {
		t.Errorf("the bundle owns %d types", len(owned))
	}
	for _, o := range owned {
		crd := o.(map[string]any)
		if fields, _ := crd["specDescriptors"].([]any); crd["description"] == "" || len(fields) < 5 {
			t.Errorf("type %s has no description", crd["name"])
		}
	}
	examples, _, _ := unstructured.NestedString(csv, "metadata", "annotations", "alm-examples")
	var samples []unstructured.Unstructured
	if err := yaml.UnmarshalStrict([]byte(examples), &samples); err != nil || len(samples) != 2 {
		t.Errorf("there are %d examples: %v", len(samples), err)
	}
	var granted struct {
		Spec struct {
			Install struct {
				Spec struct {
					ClusterPermissions []struct{ Rules []rbacv1.PolicyRule }
				}
			}
		}
	}
	if err := yaml.Unmarshal(all[name], &granted); err != nil {
		t.Fatal(err)
	}
	for _, rule := range granted.Spec.Install.Spec.ClusterPermissions[0].Rules {
		if slices.Contains(rule.Verbs, "escalate") || slices.Contains(rule.Verbs, "*") ||
			slices.Contains(rule.Verbs, "bind") && len(rule.ResourceNames) == 0 {
			t.Errorf("a right has no limit to names: %v", rule)
		}
	}
}

func TestA66_TheCatalogHasThePackageItsChannelAndTheBundle(t *testing.T) {
	t.Parallel()
	all := makeBundle(t, options{version: "0.2.0-rc.1", image: image, bundleImage: "registry.example/bundle@sha256:00"})
	schemas := map[string]map[string]any{}
	for _, part := range bytes.Split(all["catalog/configs/"+packageName+"/catalog.yaml"], []byte("---\n"))[1:] {
		blob := map[string]any{}
		if err := yaml.UnmarshalStrict(part, &blob); err != nil {
			t.Fatal(err)
		}
		schemas[blob["schema"].(string)] = blob
	}
	entries, _ := schemas["olm.channel"]["entries"].([]any)
	bundle := schemas["olm.bundle"]
	if len(entries) != 1 || entries[0].(map[string]any)["name"] != bundle["name"] ||
		schemas["olm.package"]["defaultChannel"] != schemas["olm.channel"]["name"] ||
		bundle["image"] != "registry.example/bundle@sha256:00" {
		t.Errorf("%v", schemas)
	}
	if skips := entries[0].(map[string]any)["skipRange"]; skips != ">=0.0.0-0 <0.2.0-rc.1" {
		t.Errorf("the version can be reached from %v", skips)
	}
	said, _, err := unstructured.NestedSlice(bundle, "properties")
	if err != nil {
		t.Fatal(err)
	}
	about := said[len(said)-1].(map[string]any)["value"].(map[string]any)
	if owned, _, _ := unstructured.NestedSlice(about, "crdDescriptions", "owned"); len(owned) != 2 {
		t.Errorf("the catalog shows %d types", len(owned))
	}
	if labels, _, _ := unstructured.NestedStringMap(about, "labels"); labels["operatorframework.io/arch.arm64"] != "supported" {
		t.Errorf("the labels of the catalog are %v", labels)
	}
	related, _ := bundle["relatedImages"].([]any)
	if len(related) != 2 {
		t.Errorf("a mirror would copy %v", related)
	}
}

// If the catalog skips no version, a Subscription reports that it already has the latest version, and doesn't upgrade.
// A new major version must be reachable from the last minor versions of the old one.
func TestA66_ANewMajorVersionIsReachedFromTheLastMinorVersionsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ version, replaces, from string }{
		{"1.0.0", "0.9.0", ">=0.8.0-0 <1.0.0"},
		{"1.1.0", "0.9.2", ">=0.9.0-0 <1.1.0"},
		{"1.1.0", "1.0.3", ">=1.0.0-0 <1.1.0"},
		{"1.2.0", "0.9.0", ">=1.0.0-0 <1.2.0"},
		{"1.0.0", "0.0.9", ">=0.0.0-0 <1.0.0"},
		{"0.9.0", "0.8.1", ">=0.7.0-0 <0.9.0"},
	} {
		all := makeBundle(t, options{version: c.version, replaces: c.replaces, image: image})
		if text := string(all["catalog/configs/"+packageName+"/catalog.yaml"]); !strings.Contains(text,
			"skipRange: '"+c.from+"'\n") {
			t.Errorf("%s, which replaces %s, is not reached from %s", c.version, c.replaces, c.from)
		}
	}
}

func TestAVersionThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "1.2", "1.2.3/../..", "01.2.3"} {
		if err := build(options{root: root, out: t.TempDir(), version: version}); err == nil {
			t.Errorf("the invalid version %q was accepted", version)
		}
	}
}
