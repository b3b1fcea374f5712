package config_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	guardedNamespace = "guarded"
	classless        = "classless"
	otherNamespace   = "other"
	guardLabel       = "windowsmachineconfig.openshift.io/workload-guard"
)

// warnings records the API server's warnings.
type warnings struct {
	mutex sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	taken := w.texts
	w.texts = nil
	return taken
}

// workloads returns an API server that enforces the workload policies, and creates two namespaces.
func workloads(t *testing.T) (kubernetes.Interface, *warnings) {
	t.Helper()
	lab := own(t)
	warned := &warnings{}
	config := rest.CopyConfig(lab.Admin())
	config.WarningHandler = warned
	admin := connect(t, config)
	for name, labels := range map[string]map[string]string{
		contract.OperatorNamespace: nil, otherNamespace: {guardLabel: "disabled"}, guardedNamespace: {guardLabel: "enabled"},
		classless: {guardLabel: "without-class"},
	} {
		_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: labels}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	foreign := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"}
	if _, err := admin.NodeV1().RuntimeClasses().Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"runtimeclass", "admission", "workload"} {
		run(t, ".", lab.Binaries.Kubectl, "--kubeconfig", lab.Kubeconfig, "apply", "--server-side", "-k", part)
	}
	until(t, func(ctx context.Context) bool { // waits for the accounts and the policies
		for _, namespace := range []string{guardedNamespace, otherNamespace, classless} {
			if _, err := dry(ctx, admin, namespace, windowsPod()); err != nil {
				return false
			}
		}
		pod, err := dry(ctx, admin, guardedNamespace, windowsPod("app:ltsc2019"))
		_, failed := admin.AppsV1().DaemonSets(guardedNamespace).Create(ctx, everywhere(nil), onlyTry())
		return err == nil && failed == nil && pod.Spec.OS != nil && pod.Spec.RuntimeClassName != nil &&
			len(warned.take()) > 0
	})
	return admin, warned
}

func onlyTry() metav1.CreateOptions {
	return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
}

// dry creates a pod as a dry run, and returns the pod as the API server changes it.
func dry(ctx context.Context, c kubernetes.Interface, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.CoreV1().Pods(namespace).Create(ctx, pod, onlyTry())
}

// windowsPod returns a pod that selects Windows nodes. Each image is an additional container.
func windowsPod(images ...string) *corev1.Pod {
	pod := plainPod(images...)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows"}
	return pod
}

func plainPod(images ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	for _, image := range append([]string{"example.com/app"}, images...) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "c" + string(rune('a'+len(pod.Spec.Containers))), Image: image})
	}
	return pod
}

func edited(pod *corev1.Pod, edit func(spec *corev1.PodSpec)) *corev1.Pod {
	edit(&pod.Spec)
	return pod
}

// only returns node affinity with the given number of terms. Each term matches nodes with one of the values.
func only(terms int, expressions ...corev1.NodeSelectorRequirement) *corev1.Affinity {
	selector := &corev1.NodeSelector{}
	for range terms {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms,
			corev1.NodeSelectorTerm{MatchExpressions: expressions})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func hostProcess() *corev1.WindowsSecurityContextOptions {
	yes, user := true, `NT AUTHORITY\SYSTEM`
	return &corev1.WindowsSecurityContextOptions{HostProcess: &yes, RunAsUserName: &user}
}

// completed is a test case: a pod, and the changes that the API server must make.
type completed struct {
	pod *corev1.Pod
	// os and class are the pod's values afterwards. An empty string means no value.
	os, class string
	// tolerates reports whether the pod tolerates the taint of Windows nodes.
	tolerates bool
}

func completions() map[string]completed {
	windows := &corev1.PodOS{Name: corev1.Windows}
	either := only(2, in(corev1.LabelOSStable, "windows"))
	either.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[1].MatchExpressions =
		[]corev1.NodeSelectorRequirement{in("a", "b")}
	class := func(name string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.RuntimeClassName = &name }
	}
	return map[string]completed{
		"selects Windows by label": {pod: windowsPod(), os: "windows", tolerates: true},
		"selects Windows by each term of its affinity": {os: "windows", tolerates: true, pod: edited(plainPod(),
			func(s *corev1.PodSpec) { s.Affinity = only(2, in(corev1.LabelOSStable, "windows")) })},
		"names Windows":           {os: "windows", tolerates: true, pod: edited(plainPod(), func(s *corev1.PodSpec) { s.OS = windows })},
		"has a class for Windows": {os: "windows", class: "windows2022", tolerates: true, pod: edited(plainPod(), class("windows2022"))},
		"may go to Windows or elsewhere": {pod: edited(plainPod(), func(s *corev1.PodSpec) {
			s.Affinity = either
		})},
		"may go to both systems": {pod: edited(plainPod(), func(s *corev1.PodSpec) {
			s.Affinity = only(1, in(corev1.LabelOSStable, "windows", "linux"))
		})},
		"selects Linux": {pod: edited(plainPod("app:ltsc2019"), func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
		})},
		"selects nothing": {pod: plainPod("app:ltsc2019")},
		"names Linux and selects Windows": {os: "linux", pod: edited(windowsPod("app:ltsc2019"), func(s *corev1.PodSpec) {
			s.OS = &corev1.PodOS{Name: corev1.Linux}
		})},
		"tolerates everything": {os: "windows", tolerates: true, pod: edited(windowsPod(), func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		})},
		"tolerates another effect": {os: "windows", tolerates: true, pod: edited(windowsPod(), func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "os", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
		})},
		"an image of 2019":                     {pod: windowsPod("registry:5000/app:4.8-ltsc2019"), os: "windows", class: "windows2019", tolerates: true},
		"an image with a digest":               {pod: windowsPod("a/b:ltsc2019@sha256:" + strings.Repeat("a", 64)), os: "windows", class: "windows2019", tolerates: true},
		"a port and no tag":                    {pod: windowsPod("ltsc2019:5000/app"), os: "windows", tolerates: true},
		"an image of 2025":                     {pod: windowsPod("app:ltsc2025"), os: "windows", class: "windows2025", tolerates: true},
		"images that agree":                    {pod: windowsPod("a:x-ltsc2019", "b:ltsc2019"), os: "windows", class: "windows2019", tolerates: true},
		"images that do not agree":             {pod: windowsPod("a:ltsc2019", "b:ltsc2025"), os: "windows", tolerates: true},
		"a tag that only has it in the middle": {pod: windowsPod("a:ltsc2019-1"), os: "windows", tolerates: true},
		// Windows Server 2025 can run this image as well, and a cluster without Server 2022 has no RuntimeClass for
		// it.
		"an image of 2022": {pod: windowsPod("a:ltsc2022"), os: "windows", tolerates: true},
		"a container that runs first": {os: "windows", class: "windows2019", tolerates: true,
			pod: edited(windowsPod(), func(s *corev1.PodSpec) {
				s.InitContainers = []corev1.Container{{Name: "first", Image: "a:ltsc2019"}}
			})},
		"a class of its own": {os: "windows", class: "gvisor", tolerates: true,
			pod: edited(windowsPod("a:ltsc2019"), class("gvisor"))},
		"a build of its own": {os: "windows", tolerates: true, pod: edited(windowsPod("a:ltsc2019"), func(s *corev1.PodSpec) {
			s.NodeSelector[contract.BuildLabel] = "10.0.26100"
		})},
		"a build of its own by affinity": {os: "windows", tolerates: true, pod: edited(windowsPod("a:ltsc2019"),
			func(s *corev1.PodSpec) { s.Affinity = only(1, in(contract.BuildLabel, "10.0.26100")) })},
		"a pod of a DaemonSet": {os: "windows", tolerates: true, pod: edited(windowsPod("a:ltsc2019"), func(s *corev1.PodSpec) {
			s.Affinity = only(1)
			s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields =
				[]corev1.NodeSelectorRequirement{in("metadata.name", "win-a")}
		})},
		"a node of its own": {os: "windows", tolerates: true, pod: edited(windowsPod("a:ltsc2019"), func(s *corev1.PodSpec) {
			s.NodeName = "win-a"
		})},
		"processes of the host": {os: "windows", tolerates: true, pod: edited(windowsPod("a:ltsc2019"), func(s *corev1.PodSpec) {
			s.HostNetwork, s.SecurityContext = true, &corev1.PodSecurityContext{WindowsOptions: hostProcess()}
		})},
		"a process of the host": {os: "windows", tolerates: true, pod: edited(windowsPod("a:ltsc2019"), func(s *corev1.PodSpec) {
			s.HostNetwork = true
			for i := range s.Containers {
				s.Containers[i].SecurityContext = &corev1.SecurityContext{WindowsOptions: hostProcess()}
			}
		})},
	}
}

// A real API server completes pods for Windows, and refuses pods that Windows can't run.
func TestA73_PodsForWindowsGetWhatTheyLackWhereANamespaceAsksForIt(t *testing.T) {
	t.Parallel()
	admin, warned := workloads(t)
	t.Run("completes", func(t *testing.T) {
		for name, want := range completions() {
			pod, err := dry(t.Context(), admin, guardedNamespace, want.pod.DeepCopy())
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := system(pod); got != want.os {
				t.Errorf("%s: the pod's OS is %q, want %q", name, got, want.os)
			}
			if got := className(pod); got != want.class {
				t.Errorf("%s: the RuntimeClass is %q, want %q", name, got, want.class)
			}
			if got := toleratesWindows(pod); got != want.tolerates {
				t.Errorf("%s: the pod tolerates %v", name, pod.Spec.Tolerations)
			}
			for _, own := range want.pod.Spec.Tolerations {
				if !slices.Contains(pod.Spec.Tolerations, own) {
					t.Errorf("%s: the pod no longer tolerates %v", name, own)
				}
			}
			if build := want.pod.Spec.NodeSelector[contract.BuildLabel]; build != "" &&
				pod.Spec.NodeSelector[contract.BuildLabel] != build {
				t.Errorf("%s: the node selector changed to %v", name, pod.Spec.NodeSelector)
			}
			// The RuntimeClass that the policy sets selects the build, as a RuntimeClass in the pod does.
			if strings.HasPrefix(want.class, "windows") && pod.Spec.NodeSelector[contract.BuildLabel] == "" {
				t.Errorf("%s: the pod selects no build: %v", name, pod.Spec.NodeSelector)
			}
		}
	})
	t.Run("sets no RuntimeClass if the namespace doesn't request it", func(t *testing.T) {
		pod, err := dry(t.Context(), admin, classless, windowsPod("a:ltsc2019"))
		if err != nil || system(pod) != "windows" || !toleratesWindows(pod) || className(pod) != "" {
			t.Errorf("%v: %q, %q", err, system(pod), className(pod))
		}
	})
	t.Run("adds nothing twice", func(t *testing.T) {
		pod := edited(windowsPod(), func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "os", Operator: corev1.TolerationOpEqual, Value: "Windows",
				Effect: corev1.TaintEffectNoSchedule}}
		})
		got, err := dry(t.Context(), admin, guardedNamespace, pod)
		if err != nil || count(got, "os") != 1 {
			t.Errorf("%v, tolerations %v", err, got.Spec.Tolerations)
		}
	})
	t.Run("refuses pods that Windows can't run", func(t *testing.T) {
		one := int64(1)
		for name, edit := range map[string]func(*corev1.PodSpec){
			"fsGroup":   func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{FSGroup: &one} },
			"runAsUser": func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &one} },
			"hostPID":   func(s *corev1.PodSpec) { s.HostPID = true },
			"capabilities": func(s *corev1.PodSpec) {
				s.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{
					Drop: []corev1.Capability{"ALL"}}}
			},
		} {
			_, err := dry(t.Context(), admin, guardedNamespace, edited(windowsPod(), edit))
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err = dry(t.Context(), admin, otherNamespace, edited(windowsPod(), edit)); err != nil {
				t.Errorf("%s, in a namespace without the label: %v", name, err)
			}
		}
		// This simulates an installation without that RuntimeClass.
		if err := admin.NodeV1().RuntimeClasses().Delete(t.Context(), "windows2025", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, func(ctx context.Context) bool {
			_, err := dry(ctx, admin, guardedNamespace, windowsPod("a:ltsc2025"))
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `RuntimeClass "windows2025" not found`)
		})
	})
	t.Run("changes no pods in other namespaces", func(t *testing.T) {
		for name, c := range completions() {
			pod, err := dry(t.Context(), admin, otherNamespace, c.pod.DeepCopy())
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if system(pod) != system(c.pod) || className(pod) != className(c.pod) {
				t.Errorf("%s: changed to %q, %q", name, system(pod), className(pod))
			}
			if c.class == "" && toleratesWindows(pod) != toleratesWindows(c.pod) {
				t.Errorf("%s: tolerates %v", name, pod.Spec.Tolerations)
			}
		}
	})
	t.Run("warns of DaemonSets", func(t *testing.T) { warnsOfDaemonSets(t, admin, warned) })
	t.Run("takes tags that an administrator adds, and works without any", func(t *testing.T) {
		hints := admin.CoreV1().ConfigMaps(contract.OperatorNamespace)
		classes, err := hints.Get(t.Context(), "windows-workload-classes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		becomes := func(class string) {
			t.Helper()
			until(t, func(ctx context.Context) bool {
				pod, err := dry(ctx, admin, guardedNamespace, windowsPod("a:1809"))
				return err == nil && system(pod) == "windows" && toleratesWindows(pod) && className(pod) == class
			})
		}
		classes.Data["1809"] = "windows2019"
		if _, err = hints.Update(t.Context(), classes, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		becomes("windows2019")
		if err = hints.Delete(t.Context(), classes.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		becomes("")
	})
}

// everywhere returns a DaemonSet that tolerates all taints.
func everywhere(edit func(spec *corev1.PodSpec)) *appsv1.DaemonSet {
	labels := map[string]string{"app": "all"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: plainPod().Spec},
	}}
	set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if edit != nil {
		edit(&set.Spec.Template.Spec)
	}
	return set
}

func warnsOfDaemonSets(t *testing.T, admin kubernetes.Interface, warned *warnings) {
	t.Helper()
	tolerating := func(key, value string, operator corev1.TolerationOperator) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: key, Value: value, Operator: operator}}
		}
	}
	class := "windows2019"
	for name, c := range map[string]struct {
		edit func(*corev1.PodSpec)
		warn bool
	}{
		"tolerates everything":                      {warn: true},
		"tolerates the key":                         {edit: tolerating("os", "", corev1.TolerationOpExists), warn: true},
		"tolerates the taint":                       {edit: tolerating("os", "Windows", ""), warn: true},
		"tolerates the other spelling of the taint": {edit: tolerating("os", "windows", ""), warn: true},
		"tolerates something else":                  {edit: tolerating("gpu", "", corev1.TolerationOpExists)},
		"tolerates nothing":                         {edit: func(s *corev1.PodSpec) { s.Tolerations = nil }},
		"selects Linux": {edit: func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
		}},
		"names its system":       {edit: func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: corev1.Linux} }},
		"names a class":          {edit: func(s *corev1.PodSpec) { s.RuntimeClassName = &class }},
		"names it in each term":  {edit: func(s *corev1.PodSpec) { s.Affinity = only(2, in(corev1.LabelOSStable, "linux")) }},
		"affinity of other kind": {edit: func(s *corev1.PodSpec) { s.Affinity = only(1, in("a", "b")) }, warn: true},
	} {
		warned.take()
		_, err := admin.AppsV1().DaemonSets(guardedNamespace).Create(t.Context(), everywhere(c.edit), onlyTry())
		got := warned.take()
		if err != nil || (len(got) > 0) != c.warn || c.warn && !strings.Contains(got[0], "kubernetes.io/os: linux") {
			t.Errorf("%s: %v, warnings %q", name, err, got)
		}
	}
	_, err := admin.AppsV1().DaemonSets(otherNamespace).Create(t.Context(), everywhere(nil), onlyTry())
	if got := warned.take(); err != nil || len(got) > 0 {
		t.Errorf("in a namespace without the label: %v, %q", err, got)
	}
}

func system(pod *corev1.Pod) string {
	if pod.Spec.OS == nil {
		return ""
	}
	return string(pod.Spec.OS.Name)
}

func className(pod *corev1.Pod) string {
	if pod.Spec.RuntimeClassName == nil {
		return ""
	}
	return *pod.Spec.RuntimeClassName
}

func toleratesWindows(pod *corev1.Pod) bool {
	taint := corev1.Taint{Key: contract.TaintKey, Value: contract.TaintValue, Effect: corev1.TaintEffectNoSchedule}
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &taint, false)
	})
}

func count(pod *corev1.Pod, key string) int {
	return len(slices.DeleteFunc(slices.Clone(pod.Spec.Tolerations),
		func(t corev1.Toleration) bool { return t.Key != key }))
}

// API servers before 1.36 don't know these kinds, so the manifests for older clusters must not have them.
func TestA73_WhatOlderAPIServersLackStandsApart(t *testing.T) {
	t.Parallel()
	for _, m := range manifests(t) {
		switch policy := m.object.(type) {
		case *admissionregistrationv1.MutatingAdmissionPolicy:
			if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionregistrationv1.Ignore {
				t.Errorf("%s refuses requests that it can't evaluate", policy.Name)
			}
			named[*admissionregistrationv1.MutatingAdmissionPolicyBinding](t, policy.Name)
		case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		default:
			continue
		}
		if filepath.Dir(m.file) != "workload" {
			t.Errorf("%s is in %s", m.object.GetName(), m.file)
		}
	}
}
