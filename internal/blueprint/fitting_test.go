package blueprint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// versions returns several versions of one part of a payload.
func versions(name string, all ...string) (files []payload.File) {
	part, _ := payload.PartNamed(name)
	for _, v := range all {
		files = append(files, payload.File{Name: name, Path: part.Path, Version: v, Digest: name + v})
	}
	return files
}

func TestA61_ThePayloadFitsTheAPIServersMinorByItself(t *testing.T) {
	t.Parallel()
	minors := []string{"v1.37.2", "v1.36.3", "v1.35.4", "v1.34.4"}
	for name, test := range map[string]struct {
		server         string
		kubelets       []string
		proxies        []string
		kubelet, proxy string
		// says lists texts that the message must contain: the problem if no kubelet fits, or the reason why there is
		// no kube-proxy.
		says []string
	}{
		"the same minor":             {"v1.36.3", minors, minors, "v1.36.3", "v1.36.3", nil},
		"an older patch of it":       {"v1.36.0", minors, minors, "v1.36.3", "v1.36.3", nil},
		"the newest":                 {"v1.37.0", minors, minors, "v1.37.2", "v1.37.2", nil},
		"newer than all":             {"v1.40.1", minors, minors, "v1.37.2", "v1.37.2", nil},
		"older than all but one":     {"v1.34.9+abc", minors, minors, "v1.34.4", "v1.34.4", nil},
		"any order":                  {"v1.36.3", []string{"v1.34.4", "v1.36.3", "v1.35.4"}, minors, "v1.36.3", "v1.36.3", nil},
		"the newest patch":           {"v1.36.3", []string{"v1.36.9", "v1.36.10", "v1.36.1"}, minors, "v1.36.10", "v1.36.3", nil},
		"no kube-proxy of the same":  {"v1.36.3", minors, []string{"v1.37.2", "v1.35.4", "v1.34.4"}, "v1.36.3", "v1.35.4", nil},
		"one kube-proxy, unknown":    {"v1.36.3", minors, []string{"unknown"}, "v1.36.3", "unknown", nil},
		"kube-proxy is rather known": {"v1.36.3", minors, []string{"unknown", "v1.35.4"}, "v1.36.3", "v1.35.4", nil},
		"a supplied kubelet beside":  {"v1.36.3", []string{"unknown", "v1.35.4"}, minors, "v1.35.4", "v1.35.4", nil},
		"no kube-proxy at all":       {"v1.36.3", minors, nil, "v1.36.3", "", nil},
		"no kube-proxy that fits": {"v1.36.3", minors, []string{"v1.37.2"}, "v1.36.3", "",
			[]string{"v1.37.2, which is newer than the API server"}},
		"an API server older than all": {"v1.33.1", minors, minors, "", "", []string{"the API server is v1.33.1",
			"1.30 to 1.33", "v1.37.2, which is newer", "v1.34.4, which is newer"}},
		"an API server too new for all": {"v1.41.0", minors, minors, "", "", []string{"1.38 to 1.41",
			"v1.37.2, which is more than 3 minor versions older"}},
		"nothing that says its version": {"v1.36.3", []string{"unknown"}, minors, "", "", []string{`"unknown", which is no`}},
		"a server that says nothing":    {"?", minors, minors, "", "", []string{`calls itself "?"`}},
		"a server before a third minor": {"v1.1.0", minors, minors, "", "", []string{"1.0 to 1.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			common := payload.File{Name: "containerd.exe", Version: "v2.4.2", Path: contract.PathContainerd, Digest: "c"}
			all := payload.Manifest{Files: append(append(versions("kubelet.exe", test.kubelets...), common),
				versions("kube-proxy.exe", test.proxies...)...)}
			before := append([]payload.File{}, all.Files...)
			got, problem := blueprint.Fitting(test.server, all)
			if diff := cmp.Diff(before, all.Files); diff != "" {
				t.Fatalf("the payload itself was changed:\n%s", diff)
			}
			if problem != nil {
				expectWords(t, problem.Detail, test.says)
				if test.kubelet != "" || problem.Reason != contract.ReasonVersionUnsupported {
					t.Errorf("the problem is %v", problem)
				}
				return
			}
			want := []payload.File{versions("kubelet.exe", test.kubelet)[0], common}
			if test.proxy != "" {
				want = append(want, versions("kube-proxy.exe", test.proxy)...)
			}
			if diff := cmp.Diff(want, got.Files); diff != "" {
				t.Errorf("other files were chosen:\n%s", diff)
			}
			for _, missing := range got.Missing {
				expectWords(t, missing.Reason, test.says)
			}
			if len(got.Missing) != len(test.says) {
				t.Errorf("the missing files are %v", got.Missing)
			}
		})
	}
}

func expectWords(t *testing.T, text string, words []string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q lacks %q", text, w)
		}
	}
}

func TestWithoutAKubeProxyThatFitsServicesAreOff(t *testing.T) {
	t.Parallel()
	in := input()
	in.Payload = withVersion(contract.PathKubeProxy, "v1.99.0")
	off := render(t, in).Off
	if len(off) != 1 || off[0].Feature != payload.FeatureServiceNetwork || !strings.Contains(off[0].Reason, "v1.99.0") {
		t.Errorf("the features that are off are %v", off)
	}
}
