package cluster

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func crdYAML(name, set string) string {
	return `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: ` + name + `
  annotations: {release.openshift.io/feature-set: "` + set + `"}
spec: {group: example.com}
status: {conditions: []}
`
}

func TestReadCRDs(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string]string{
		"one.yaml": "# only a comment\n---\n" + crdYAML("as.example.com", "Default") +
			"---\nkind: ConfigMap\napiVersion: v1\n" + crdYAML("bs.example.com", "Default"),
		"two.yml":       crdYAML("as.example.com", "TechPreview"),
		"ignored.json":  "{",
		"broken.txt":    "a: [",
		"empty/x.yaml":  "",
		"notes/read.me": "",
	})
	isDefault := func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Annotations["release.openshift.io/feature-set"] == "Default"
	}
	for name, test := range map[string]struct {
		paths   []string
		names   []string
		filter  func(*apiextensionsv1.CustomResourceDefinition) bool
		want    string
		wantErr string
	}{
		"a file of several documents": {paths: []string{"one.yaml"}, want: "as.example.com bs.example.com"},
		"a folder, filtered":          {paths: []string{"."}, filter: isDefault, want: "as.example.com bs.example.com"},
		"by name": {paths: []string{"one.yaml"}, names: []string{"bs.example.com"},
			want: "bs.example.com"},
		"a name that is not there": {paths: []string{"one.yaml"}, names: []string{"cs.example.com"},
			wantErr: "cs.example.com is not in"},
		"two of one name":          {paths: []string{"."}, wantErr: "as.example.com is defined in"},
		"nothing chosen":           {paths: []string{"empty"}, wantErr: "none chosen"},
		"a path that is not there": {paths: []string{"absent"}, wantErr: "absent"},
		"a file that is no YAML":   {paths: []string{"broken.txt"}, wantErr: "broken.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := CRDOptions{Names: test.names, Filter: test.filter}
			for _, path := range test.paths {
				options.Paths = append(options.Paths, filepath.Join(dir, path))
			}
			chosen, err := readCRDs(options)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error %v, want %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for name, document := range chosen {
				names = append(names, name)
				if strings.Contains(string(document.manifest), "status") {
					t.Errorf("the manifest to apply contains a status: %s", document.manifest)
				}
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestOpenShiftDefault(t *testing.T) {
	t.Parallel()
	const ha, set, gate = "include.release.openshift.io/self-managed-high-availability",
		"release.openshift.io/feature-set", "release.openshift.io/feature-gate"
	for name, test := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"in every feature set": {map[string]string{ha: "true"}, true},
		"in the default one":   {map[string]string{ha: "true", set: "Default"}, true},
		"in several":           {map[string]string{ha: "true", set: "OKD,Default"}, true},
		"in the preview only": {map[string]string{ha: "true", set: "CustomNoUpgrade,TechPreviewNoUpgrade"},
			false},
		"behind a feature gate":     {map[string]string{ha: "true", gate: "SomethingNew"}, false},
		"of hosted clusters only":   {map[string]string{set: "Default"}, false},
		"not of OpenShift's making": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := &apiextensionsv1.CustomResourceDefinition{
				ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			if got := OpenShiftDefault(crd); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestEstablished(t *testing.T) {
	t.Parallel()
	const yes, no = apiextensionsv1.ConditionTrue, apiextensionsv1.ConditionFalse
	for name, test := range map[string]struct {
		accepted, established apiextensionsv1.ConditionStatus
		want, wantErr         bool
	}{
		"not looked at yet":            {},
		"accepted, not yet served":     {accepted: yes, established: no},
		"established":                  {accepted: yes, established: yes, want: true},
		"a name that another one uses": {accepted: no, established: no, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.NamesAccepted, Status: test.accepted},
				{Type: apiextensionsv1.Established, Status: test.established},
			}
			got, err := established(crd)
			if got != test.want || (err != nil) != test.wantErr {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
