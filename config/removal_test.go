package config_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// played runs a program with two fake commands. kubectl does nothing and succeeds. go simulates the check before a
// removal, which passes if passes is set. played returns the calls of kubectl.
func played(t *testing.T, passes bool, program string, args ...string) (calls []string, err error) {
	t.Helper()
	dir := t.TempDir()
	check := map[bool]string{true: "exit 0", false: "exit 1"}[passes]
	for name, script := range map[string]string{"kubectl": `echo "$*" >>"$CALLS"`, "go": check} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir = ".."
	c.Env = append(os.Environ(), "CALLS="+filepath.Join(dir, "calls"), "MAKEFLAGS=", "MAKELEVEL=",
		"PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := c.CombinedOutput()
	t.Logf("%s", output)
	text, _ := os.ReadFile(filepath.Join(dir, "calls")) // the file is missing if kubectl was not called
	return slices.Collect(strings.Lines(string(text))), err
}

var (
	checked = regexp.MustCompile(`uninstall-check|make undeploy`)
	makes   = regexp.MustCompile(`(?m)^ *make undeploy CLUSTER=kubernetes`)
)

func deletes(call string) bool { return strings.HasPrefix(call, "delete ") }

func TestNothingIsDeletedAfterACheckThatFailed(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checks := 0
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile(`(?m)(?:^ {4,}.*\n)+`).FindAllString(string(content), -1) {
			if !checked.MatchString(block) || !strings.Contains(block, "kubectl delete") && !makes.MatchString(block) {
				continue
			}
			checks++
			if calls, err := played(t, false, "bash", "-c", block); err == nil || slices.ContainsFunc(calls, deletes) {
				t.Errorf("%s: %v, but kubectl is called: %q\n%s", page, err, calls, block)
			}
			calls, err := played(t, true, "bash", "-c", block)
			calls = slices.DeleteFunc(calls, func(call string) bool { return !deletes(call) })
			// The Makefile also deletes what it applies for a cluster without OpenShift.
			own := len(makes.FindAllString(block, -1)) * 2
			if err != nil || len(calls) != own+strings.Count(block, "kubectl delete") {
				t.Errorf("%s: %v, and these commands ran: %q\n%s", page, err, calls, block)
			}
		}
	}
	if checks < 2 {
		t.Errorf("found %d checks", checks)
	}
}

func TestMakeInstallsAndRemovesWhatTheKindOfClusterHas(t *testing.T) {
	t.Parallel()
	for cluster, parts := range map[string][]string{
		"openshift":  {"config/default", "config/machine-api", "config/cluster-api"},
		"kubernetes": {"config/kubernetes", "config/kubernetes/flannel"},
	} {
		t.Run(cluster, func(t *testing.T) {
			t.Parallel()
			calls, err := played(t, true, "make", "deploy", "CLUSTER="+cluster)
			calls = slices.DeleteFunc(calls, func(call string) bool { return strings.HasPrefix(call, "get ") })
			var want, removal []string
			for _, part := range parts {
				want = append(want, "apply --server-side -k "+part+"\n")
				removal = append(removal, "delete --ignore-not-found -k "+part+"\n")
			}
			if err != nil || !slices.Equal(calls, want) {
				t.Errorf("make install runs %q: %v", calls, err)
			}
			calls, err = played(t, true, "make", "undeploy", "CLUSTER="+cluster)
			slices.Sort(calls)
			slices.Sort(removal)
			if err != nil || !slices.Equal(calls, removal) {
				t.Errorf("make uninstall runs %q: %v", calls, err)
			}
			if calls, err = played(t, false, "make", "undeploy", "CLUSTER="+cluster); err == nil || len(calls) > 0 {
				t.Errorf("with hosts in the cluster, make uninstall runs %q: %v", calls, err)
			}
		})
	}
	for _, target := range []string{"deploy", "undeploy"} {
		if calls, err := played(t, true, "make", target, "CLUSTER=okd"); err == nil || len(calls) > 0 {
			t.Errorf("with an unknown kind of cluster: %q, %v", calls, err)
		}
	}
}

// A user who changes from kubectl to OLM deletes all applied objects, except the namespace and the CRDs. If these
// were deleted, all hosts would be removed.
func TestBeforeOLMOnlyNamespaceAndCRDsAreKept(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/olm.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## After an install by Helm or kubectl\n")
	section, _, _ = strings.Cut(section, "\n##")
	var got []string
	for _, match := range regexp.MustCompile(`kubectl delete --ignore-not-found -k config/(\S+)`).FindAllStringSubmatch(section, -1) {
		got = append(got, match[1])
	}
	want := []string{"cluster-api", "monitoring", "workload"} // parts that are applied separately
	whole, err := os.ReadFile("default/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^- \.\./(\S+)$`).FindAllStringSubmatch(string(whole), -1) {
		if match[1] != "namespace" && match[1] != "crd" {
			want = append(want, match[1]) // rbac contains the objects of machine-api
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the deleted parts are %q, want %q", got, want)
	}
}
