package policy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

var classNow = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// made is the class that the operator makes for a build that the cluster has.
func made(t *testing.T, build string) nodev1.RuntimeClass {
	t.Helper()
	plan := policy.PlanRuntimeClasses(policy.RuntimeClassInput{Builds: []string{build}, Now: classNow})
	if len(plan.Create) != 1 {
		t.Fatalf("%s: %d classes are made", build, len(plan.Create))
	}
	return *plan.Create[0]
}

func TestA72_AClassIsMadeForEachSupportedBuildOfTheCluster(t *testing.T) {
	t.Parallel()
	plan := policy.PlanRuntimeClasses(policy.RuntimeClassInput{Now: classNow, Builds: []string{
		"10.0.26100", "10.0.20348", "10.0.20348", "", "10.0.99999", "../x"}})
	var names []string
	for _, class := range plan.Create {
		names = append(names, class.Name)
		if class.Handler != "runhcs-wcow-process" || class.Scheduling.NodeSelector["kubernetes.io/os"] != "windows" ||
			class.Scheduling.NodeSelector["kubernetes.io/arch"] != "amd64" ||
			class.Labels["app.kubernetes.io/managed-by"] != "windows-machine-config-operator" {
			t.Errorf("%+v", class)
		}
		tolerated := map[string]bool{}
		for _, toleration := range class.Scheduling.Tolerations {
			tolerated[toleration.Key+"="+toleration.Value+":"+string(toleration.Effect)] = true
		}
		if !maps.Equal(tolerated, map[string]bool{"os=Windows:NoSchedule": true, "os=windows:NoSchedule": true}) {
			t.Errorf("%s tolerates %v", class.Name, tolerated)
		}
	}
	if !slices.Equal(names, []string{"windows2022", "windows2025"}) {
		t.Errorf("made: %v", names)
	}
	if class := made(t, "10.0.17763"); class.Name != "windows2019" ||
		class.Scheduling.NodeSelector["node.kubernetes.io/windows-build"] != "10.0.17763" {
		t.Errorf("%+v", class)
	}
}

func TestA72_WhatBecomesOfAClassThatExists(t *testing.T) {
	t.Parallel()
	since := func(ago time.Duration) func(c *nodev1.RuntimeClass) {
		return func(c *nodev1.RuntimeClass) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, contract.UnusedSinceAnnotation,
				classNow.Add(-ago).Format(time.RFC3339))
		}
	}
	theirs := func(c *nodev1.RuntimeClass) { c.Labels = map[string]string{"theirs": "yes"} }
	for name, c := range map[string]struct {
		edit   func(c *nodev1.RuntimeClass)
		gone   bool
		remove bool
		want   string
		after  time.Duration
	}{
		"is as it should be":                {want: ""},
		"has somebody's labels in addition": {edit: func(c *nodev1.RuntimeClass) { c.Labels["a"] = "b" }, want: ""},
		"selects other nodes": {
			edit: func(c *nodev1.RuntimeClass) { c.Scheduling.NodeSelector["x"] = "y" }, want: "update"},
		"lost its scheduling": {edit: func(c *nodev1.RuntimeClass) { c.Scheduling = nil }, want: "update"},
		"was unused":          {edit: since(time.Hour), want: "update"},
		"becomes unused":      {gone: true, want: "update since 2027-03-01T12:00:00Z", after: policy.RuntimeClassGrace},
		"is unused for a day": {gone: true, edit: since(24 * time.Hour), want: "",
			after: policy.RuntimeClassGrace - 24*time.Hour},
		"is unused for long":         {gone: true, edit: since(policy.RuntimeClassGrace), want: "withdraw"},
		"is unused since the future": {gone: true, edit: since(-time.Hour), want: "update since 2027-03-01T12:00:00Z", after: policy.RuntimeClassGrace},
		"has nonsense for a time": {gone: true, edit: func(c *nodev1.RuntimeClass) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, contract.UnusedSinceAnnotation, "soon")
		}, want: "update since 2027-03-01T12:00:00Z", after: policy.RuntimeClassGrace},
		"is not wanted":                    {remove: true, want: "withdraw"},
		"is not wanted, without nodes":     {remove: true, gone: true, want: "withdraw"},
		"is somebody's, and does the same": {edit: theirs, want: ""},
		"is somebody's with another handler": {
			edit: func(c *nodev1.RuntimeClass) { theirs(c); c.Handler = "x" }, want: "foreign"},
		"is somebody's without a selector": {
			edit: func(c *nodev1.RuntimeClass) { theirs(c); c.Scheduling = nil }, want: "foreign"},
		"is somebody's, without nodes": {
			edit: func(c *nodev1.RuntimeClass) { theirs(c); c.Handler = "x" }, gone: true, want: ""},
		"is somebody's, and not wanted": {
			edit: func(c *nodev1.RuntimeClass) { theirs(c); c.Handler = "x" }, remove: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			class := made(t, "10.0.20348")
			if c.edit != nil {
				c.edit(&class)
			}
			in := policy.RuntimeClassInput{Builds: []string{"10.0.20348"}, Remove: c.remove, Now: classNow,
				Existing: map[string]nodev1.RuntimeClass{class.Name: class}}
			if c.gone {
				in.Builds = nil
			}
			before := class.DeepCopy()
			plan := policy.PlanRuntimeClasses(in)
			if got := summary(plan); got != c.want || plan.After != c.after {
				t.Errorf("%q after %s, want %q after %s", got, plan.After, c.want, c.after)
			}
			if class.String() != before.String() {
				t.Error("the class that was handed in was changed")
			}
		})
	}
}

func summary(plan policy.RuntimeClassPlan) string {
	var all []string
	for range plan.Create {
		all = append(all, "create")
	}
	for _, class := range plan.Update {
		all = append(all, "update")
		if since := class.Annotations[contract.UnusedSinceAnnotation]; since != "" {
			all = append(all, "since", since)
		}
	}
	for range plan.Withdraw {
		all = append(all, "withdraw")
	}
	for range plan.Foreign {
		all = append(all, "foreign")
	}
	return strings.Join(all, " ")
}

func TestA72_AClassIsNotUnusedForLongerThanItExists(t *testing.T) {
	t.Parallel()
	class := made(t, "10.0.20348")
	class.CreationTimestamp = metav1.NewTime(classNow.Add(-time.Hour))
	metav1.SetMetaDataAnnotation(&class.ObjectMeta, contract.UnusedSinceAnnotation, "1999-01-01T00:00:00Z")
	plan := policy.PlanRuntimeClasses(policy.RuntimeClassInput{Now: classNow,
		Existing: map[string]nodev1.RuntimeClass{class.Name: class}})
	if got := summary(plan); got != "update since 2027-03-01T12:00:00Z" {
		t.Errorf("%q", got)
	}
}
