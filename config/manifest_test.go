package config_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

const kustomizationFile = "kustomization.yaml"

// manifest is an object and its file.
type manifest struct {
	file   string
	object client.Object
}

// manifests decodes every object in the folder strictly. An unknown field is an error here, whereas kubectl would
// ignore it or only warn.
func manifests(t *testing.T) []manifest {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, monitoringv1.AddToScheme, machinev1beta1.Install,
		v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []manifest
	for _, file := range yamlFiles(t) {
		if filepath.Base(file) == kustomizationFile {
			continue
		}
		for _, document := range documents(t, file) {
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				t.Fatalf("decoding %s: %v\n%s", file, err, document)
			}
			typed, ok := object.(client.Object)
			if !ok {
				t.Fatalf("%s holds a %T", file, object)
			}
			all = append(all, manifest{file, typed})
		}
	}
	return all
}

// find returns the objects of a type.
func find[T client.Object](t *testing.T) []T {
	t.Helper()
	var found []T
	for _, m := range manifests(t) {
		if object, ok := m.object.(T); ok {
			found = append(found, object)
		}
	}
	if len(found) == 0 {
		t.Fatalf("there is no %T", *new(T))
	}
	return found
}

// named returns the only object of a type and name.
func named[T client.Object](t *testing.T, name string) T {
	t.Helper()
	found := slices.DeleteFunc(find[T](t), func(o T) bool { return o.GetName() != name })
	if len(found) != 1 {
		t.Fatalf("there are %d %T named %s", len(found), *new(T), name)
	}
	return found[0]
}

func yamlFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".yaml" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reader := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	defer reader.Close()
	var all [][]byte
	for {
		document := make([]byte, len(content))
		n, err := reader.Read(document)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		if strings.TrimSpace(string(document[:n])) != "---" {
			all = append(all, document[:n])
		}
	}
}

func TestEveryManifestDecodesStrictly(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, m := range manifests(t) {
		kind := m.object.GetObjectKind().GroupVersionKind()
		id := strings.Join([]string{kind.Group, kind.Kind, m.object.GetNamespace(), m.object.GetName()}, "/")
		// This is no duplicate, because a cluster gets only the file for its cloud.
		if other := seen[id]; other != "" && !strings.HasPrefix(m.file, machineSets) {
			t.Errorf("%s is defined in %s and in %s", id, other, m.file)
		}
		seen[id] = m.file
	}
}

func TestEveryManifestIsPartOfAKustomization(t *testing.T) {
	t.Parallel()
	for _, file := range yamlFiles(t) {
		if filepath.Base(file) == kustomizationFile || strings.HasPrefix(file, machineSets) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(filepath.Dir(file), kustomizationFile))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var kustomization struct{ Resources []string }
		if err = sigsyaml.Unmarshal(content, &kustomization); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(kustomization.Resources, filepath.Base(file)) {
			t.Errorf("%s is in no kustomization", file)
		}
	}
}
