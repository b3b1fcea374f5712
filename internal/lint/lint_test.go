package lint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/windows-nodes/wmco/internal/lint"
)

var update = flag.Bool("update", false, "write golden files anew")

// mixed returns a cluster with nodes of Windows Server 2019, 2022 and 2025.
func mixed() lint.Cluster {
	return lint.Cluster{
		Builds:         []string{"10.0.17763", "10.0.20348", "10.0.26100"},
		RuntimeClasses: map[string]string{"windows2022": "10.0.20348", "windows1909": "10.0.18363"},
		Taints:         []corev1.Taint{{Key: "os", Value: "Windows", Effect: corev1.TaintEffectNoSchedule}},
	}
}

// catalog is a registry that knows the images in the map.
type catalog map[string]lint.Offer

func (c catalog) offer(_ context.Context, image string) (lint.Offer, error) {
	offer, found := c[image]
	if !found {
		return lint.Offer{}, errors.New("not found")
	}
	return offer, nil
}

func images() catalog {
	return catalog{
		"web:2022":       {Systems: []string{"windows"}, Builds: []int{20348}},
		"web:2019":       {Systems: []string{"windows"}, Builds: []int{17763}},
		"web:all":        {Systems: []string{"linux", "windows"}, Builds: []int{17763, 20348}},
		"nginx":          {Systems: []string{"linux"}},
		"hostprocess:v1": {Systems: []string{"windows"}, Builds: []int{17763}},
	}
}

// read returns the pod templates of a manifest.
func read(file, manifest string) (all []lint.Template, err error) {
	err = resource.NewLocalBuilder().Unstructured().Stream(strings.NewReader(manifest), file).Flatten().Do().
		Visit(func(info *resource.Info, err error) error {
			if err != nil {
				return err
			}
			found, err := lint.Find(info.Source, info.Object.(*unstructured.Unstructured))
			all = append(all, found...)
			return err
		})
	return all, err
}

// ofImages checks the templates and returns the findings about images.
func ofImages(t *testing.T, templates []lint.Template, c lint.Cluster, images lint.Images) []lint.Finding {
	t.Helper()
	return slices.DeleteFunc(lint.Check(t.Context(), templates, c, images), func(f lint.Finding) bool {
		return f.Rule != "image"
	})
}

// TestA74_LintSaysWhatWillNotRunOnWindowsAndWhy compares the findings of each manifest in testdata with a golden file.
func TestA74_LintSaysWhatWillNotRunOnWindowsAndWhy(t *testing.T) {
	t.Parallel()
	manifests, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(manifests) < 8 {
		t.Fatalf("%d manifests, %v", len(manifests), err)
	}
	for _, path := range manifests {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			templates, err := read(filepath.Base(path), string(text))
			if err != nil {
				t.Fatal(err)
			}
			findings := lint.Check(t.Context(), templates, mixed(), images().offer)
			var out bytes.Buffer
			if err := lint.Print(&out, findings); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(path, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// All clusters have the same taint on Windows nodes. So lint can check for a toleration without a cluster.
func TestA74_WithoutAClusterTheTaintOfWindowsNodesIsKnown(t *testing.T) {
	t.Parallel()
	const toleration = "lacks the taint os=Windows:NoSchedule"
	for name, c := range map[string]struct {
		tolerations string
		cluster     lint.Cluster
		says, fix   string
	}{
		"none":                                {tolerations: `[]`, says: toleration, fix: "key os, value Windows"},
		"all":                                 {tolerations: `[{operator: Exists}]`},
		"the key":                             {tolerations: `[{key: os, operator: Exists}]`},
		"the taint":                           {tolerations: `[{key: os, value: Windows, effect: NoSchedule}]`},
		"another effect":                      {tolerations: `[{key: os, value: Windows, effect: NoExecute}]`, says: toleration},
		"the page's value":                    {tolerations: `[{key: os, value: windows, effect: NoSchedule}]`, says: "windows is not Windows", fix: "value Windows"},
		"a cluster as well":                   {tolerations: `[{key: os, value: windows}]`, cluster: mixed(), says: "windows is not Windows", fix: "value Windows"},
		"a cluster whose nodes have no taint": {tolerations: `[]`, cluster: lint.Cluster{Builds: []string{"10.0.20348"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			templates, err := read("f", "kind: Pod\nmetadata: {name: a}\nspec: {os: {name: windows}, "+
				"nodeSelector: {kubernetes.io/os: windows}, containers: [{name: a, resources: {requests: {memory: 1Gi}}}], "+
				"tolerations: "+c.tolerations+"}")
			if err != nil {
				t.Fatal(err)
			}
			findings := lint.Check(t.Context(), templates, c.cluster, nil)
			if c.says == "" && len(findings) == 0 {
				return
			}
			if c.says == "" || len(findings) != 1 || findings[0].Severity != lint.Error ||
				!strings.Contains(findings[0].Message, c.says) || !strings.Contains(findings[0].Fix, c.fix) {
				t.Errorf("%+v", findings)
			}
		})
	}
}

func TestA74_APodThatMustNotBeRootNeverStartsAsTheAdministrator(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod, container string
		found          bool
	}{
		"both of the pod": {pod: `{runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerAdministrator}}`,
			container: `{}`, found: true},
		"both of the container": {pod: `{}`,
			container: `{runAsNonRoot: true, windowsOptions: {runAsUserName: containeradministrator}}`, found: true},
		"one of each": {pod: `{windowsOptions: {runAsUserName: ContainerAdministrator}}`, container: `{runAsNonRoot: true}`,
			found: true},
		"the container has another user": {pod: `{runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerAdministrator}}`,
			container: `{windowsOptions: {runAsUserName: ContainerUser}}`},
		"the container may be root": {pod: `{runAsNonRoot: true, windowsOptions: {runAsUserName: ContainerAdministrator}}`,
			container: `{runAsNonRoot: false}`},
		"the image names the user": {pod: `{runAsNonRoot: true}`, container: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			templates, err := read("f", "kind: Pod\nmetadata: {name: a}\nspec: {os: {name: windows}, "+
				"containers: [{name: a, securityContext: "+c.container+"}], securityContext: "+c.pod+"}")
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, f := range lint.Check(t.Context(), templates, mixed(), nil) {
				found = found || f.Rule == "run-as-non-root" && f.Severity == lint.Error
			}
			if found != c.found {
				t.Errorf("found %v", found)
			}
		})
	}
}

func TestA74_WhatIsNoManifestIsSaidWithItsPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":       {"kind: b\n---\n\t{not yaml", "parsing f: "},
		"a list at top": {"- a\n- b\n", `decode "f"`},
		"a wrong type":  {"kind: Pod\nspec: {containers: [{name: a}], hostPID: maybe}\n", "reading spec of f: Pod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read("f", c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error about %q", err, c.want)
			}
		})
	}
}

func TestA74_AHundredDocumentsAreRead(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "---\nkind: Pod\nmetadata: {name: p%d}\nspec: {hostPID: true, os: {name: windows}, "+
			"containers: [{name: c, image: i}]}\n", i)
	}
	templates, err := read("many.yaml", text.String())
	if err != nil || len(templates) != 100 {
		t.Fatalf("%d templates, %v", len(templates), err)
	}
	seen := map[string]bool{}
	for _, f := range lint.Check(t.Context(), templates, lint.Cluster{}, nil) {
		if f.Rule == "host-namespace" {
			seen[f.Object.Name] = true
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d of 100 pods were checked", len(seen))
	}
}

// These cases come from containerd, which chooses the variant of an image by this rule
// (checkWindowsHostAndContainerCompat in containerd/platforms).
func TestA74_ANodeRunsImagesBackToTheReleaseBefore(t *testing.T) {
	t.Parallel()
	const text = "kind: Pod\nmetadata: {name: a}\nspec: {os: {name: windows}, containers: [{name: c, image: app}]}\n"
	templates, err := read("a.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		node  string
		image int
		fits  bool
	}{
		{"10.0.17763", 17763, true}, {"10.0.17763", 20348, false}, {"10.0.20348", 20348, true},
		{"10.0.20348", 17763, false}, {"10.0.20348", 26100, false}, {"10.0.25398", 20348, true},
		{"10.0.26100", 17763, false}, {"10.0.26100", 20348, true}, {"10.0.26100", 25398, true},
		{"10.0.26100", 26100, true}, {"10.0.26100", 26200, false},
	} {
		found := ofImages(t, templates, lint.Cluster{Builds: []string{c.node}},
			catalog{"app": {Systems: []string{"windows"}, Builds: []int{c.image}}}.offer)
		if (len(found) == 0) != c.fits {
			t.Errorf("an image of %d on a node of %s: %+v", c.image, c.node, found)
		}
	}
}

// TestA74_AnAnswerHoldsForEachUseOfItsImage uses one image in the first and in the last of many pods. When lint reaches
// the last pod, the registry has already answered. The answer must count for both pods.
func TestA74_AnAnswerHoldsForEachUseOfItsImage(t *testing.T) {
	t.Parallel()
	offers := images()
	var text strings.Builder
	pod := func(name, image string) {
		fmt.Fprintf(&text, "---\nkind: Pod\nmetadata: {name: %s}\nspec: {os: {name: windows}, "+
			"containers: [{name: c, image: %s}]}\n", name, image)
	}
	pod("first", "nginx")
	for i := range 100 {
		image := fmt.Sprintf("between:%d", i)
		offers[image] = lint.Offer{Systems: []string{"windows"}}
		pod(fmt.Sprintf("between-%d", i), image)
	}
	pod("last", "nginx")
	templates, err := read("many.yaml", text.String())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range ofImages(t, templates, mixed(), offers.offer) {
		found = append(found, f.Object.Name+" "+f.Message)
	}
	want := []string{"first nginx has no variant for Windows, only for linux",
		"last nginx has no variant for Windows, only for linux"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestA74_FindingsAreJSONForMachines(t *testing.T) {
	t.Parallel()
	templates, err := read("",
		`{"kind":"Pod","metadata":{"name":"p"},"spec":{"os":{"name":"windows"},"hostIPC":true,"containers":[{"name":"c"}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(lint.Check(t.Context(), templates, lint.Cluster{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"rule":"host-namespace"`, `"severity":"error"`, `"field":"spec.hostIPC"`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

func FuzzFind(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text []byte) {
		templates, err := read("f", string(text))
		if err == nil {
			lint.Check(context.Background(), templates, mixed(), nil)
		}
	})
}
