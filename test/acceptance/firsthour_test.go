package acceptance

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientsfake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The page and the program list the same lines, and the program runs exactly the commands that the page shows.
func TestA76_TheFirstHourIsThePageLineByLine(t *testing.T) {
	t.Parallel()
	rows, err := firstHour()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(questions()) {
		t.Errorf("the page has %d lines, but the program has %d questions", len(rows), len(questions()))
	}
	scripts := map[string]string{}
	for _, row := range rows {
		if row.Title == "" || strings.Contains(row.Title, "`") || strings.Contains(row.Title, `\|`) {
			t.Errorf("%s has the title %q", row.Number, row.Title)
		}
		if (row.try == nil) == (row.why == "") {
			t.Errorf("%s must either have a trial or a reason why only people can test it", row.Number)
		}
		r := at(t, "one")
		r.Evidence = added(scripts)
		r.nodes = []node{{Name: "win-1"}}
		if row.try != nil {
			putOn(t, r, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
			_ = row.try(t.Context(), r) // what "fake logs" means is not the question
		}
	}
	for number, want := range map[string]string{
		"H03": "PS> Get-NetRoute -DestinationPrefix 0.0.0.0/0 | Select InterfaceAlias, NextHop\n",
		"H09": "PS> (Get-Process kubelet).Id; Stop-Process -Name kube-log-runner -Force; Start-Sleep 60; " +
			"(Get-Process kubelet).Id\n",
		"H10": "PS> Stop-Service csi-proxy; Start-Sleep 90; @(Get-Process csi-proxy).Count\n",
	} {
		if text := scripts["trials/"+number+"-win-1.txt"]; text != want+"fake logs" {
			t.Errorf("%s: %q", number, text)
		}
	}
}

// added is evidence that is kept in memory.
type added map[string]string

func (a added) Add(name string, text []byte) { a[name] = string(text) }

func (a added) Collect(context.Context) { a["collected"] = "" }

// putOn adds the node win-1 to a run, and a fake kubelet that calls does for each new pod.
func putOn(t *testing.T, r *run, does func(*corev1.Pod)) (pods map[string]corev1.PodSpec) {
	t.Helper()
	if err := r.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-1"}}); err != nil {
		t.Fatal(err)
	}
	pods = map[string]corev1.PodSpec{}
	r.clients = clientsfake.NewClientset()
	r.client = interceptor.NewClient(r.client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := c.Create(ctx, o, options...); err != nil {
				return err
			}
			pod, ok := o.(*corev1.Pod)
			if !ok {
				return nil
			}
			pods[pod.Namespace] = *pod.Spec.DeepCopy()
			does(pod)
			return c.Status().Update(ctx, pod)
		},
		// If a test deletes a namespace, the fake client deletes the pods in it, as Kubernetes does.
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if _, ok := o.(*corev1.Namespace); ok {
				if err := c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(o.GetName())); err != nil {
					return err
				}
			}
			return c.Delete(ctx, o, options...)
		}})
	return pods
}

func TestA76_AScriptRunsOnTheHostAndNothingIsLeft(t *testing.T) {
	t.Parallel()
	r := at(t, "one")
	pods := putOn(t, r, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	answer, err := hour{r}.onHost(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-1"}}, "H99", "hostname")
	if err != nil || answer != "fake logs" {
		t.Fatalf("the script's output is %q, error %v", answer, err)
	}
	namespace := slices.Sorted(maps.Keys(pods))[0]
	spec := pods[namespace]
	if w := spec.SecurityContext.WindowsOptions; spec.NodeName != "win-1" || !*w.HostProcess || !spec.HostNetwork ||
		*w.RunAsUserName != `NT AUTHORITY\SYSTEM` || !strings.Contains(spec.Containers[0].Command[4], "hostname") {
		t.Errorf("the pod is %+v", spec)
	}
	if _, there := now(t, r, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); there {
		t.Error("the pod's namespace was not deleted")
	}
}

// A script hangs, and the run gives up. The output that the script has printed must be in the evidence, because the
// output may show the cause.
func TestA76_WhatAFailedScriptPrintedIsEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, kept := at(t, "one"), added{}
		r.Evidence, r.Timeout, r.Pace = kept, time.Minute, time.Second
		putOn(t, r, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning })
		err := hour{r}.put(t.Context(), question{judge: ofText(oneRoute)}, "H99", "win-1", "hang")
		if verdict, why := judge(err); verdict != Failed || !strings.Contains(why, "took longer") {
			t.Errorf("the row is %s: %s", verdict, why)
		}
		if text := kept["trials/H99-win-1.txt"]; !strings.Contains(text, "fake logs") {
			t.Errorf("the evidence has %q", text)
		}
	})
}

func TestWhatAHostPrintsDoesNotRuleTheTerminal(t *testing.T) {
	t.Parallel()
	var progress strings.Builder
	r := at(t, "one")
	r.Progress = &progress
	r.say("H03 failed: %s", "\x1b]0;owned\a")
	results := r.try(t.Context(), []Row{{Number: "X1", trial: trial{try: func(_ context.Context, r *run) error {
		r.note("%s", "\u009b2J")
		return wrongf("%s", "\u202egnp.exe")
	}}}})
	if text := results[0].Reason + results[0].Notes[0]; strings.ContainsAny(text, "\u009b\u202e") {
		t.Errorf("the results have %q", text)
	}
	if text := progress.String(); strings.ContainsAny(text, "\x1b\a") || !strings.Contains(text, "owned") {
		t.Errorf("%q", text)
	}
}

func TestA76_WhereNoPodLooksIntoHostsOnlyTheFirstIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := at(t, "one")
		r.Timeout, r.Pace = time.Minute, time.Second
		pods := 0
		putOn(t, r, func(pod *corev1.Pod) {
			pods++
			pod.Status.Phase = corev1.PodPending
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"}}}}
		})
		for range 3 {
			_, err := hour{r}.onHost(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-1"}}, "H99", "hostname")
			if verdict, why := judge(err); verdict != Unshown || !strings.Contains(why, "ErrImagePull") {
				t.Errorf("the row is %s: %s", verdict, why)
			}
		}
		if pods != 1 {
			t.Errorf("%d pods were created, want 1", pods)
		}
		// Another node may still work, so a pod is created there.
		_, _ = hour{r}.onHost(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-2"}}, "H98", "hostname")
		if pods != 2 {
			t.Errorf("%d pods were created for the other node, want 1", pods-1)
		}
	})
}

func TestA76_AnswersOfHostsAreJudged(t *testing.T) {
	t.Parallel()
	const processes = "\nProcessId ParentProcessId ExecutablePath\n--------- --------------- --------------\n"
	for _, c := range []struct {
		judge  func(string) error
		answer string
		right  bool
	}{
		{buildIsSupported, "CurrentBuild  UBR\r\n------------  ---\r\n20348        2849\r\n", true},
		{buildIsSupported, "CurrentBuild  UBR\n------------  ---\n20348        680\n", false},
		{buildIsSupported, "CurrentBuild  UBR\n------------  ---\n20348        87\n", false},
		{buildIsSupported, "CurrentBuild  UBR\n------------  ---\n17763        107\n", true},
		{buildIsSupported, "CurrentBuild  UBR\n------------  ---\n14393        8000\n", false},
		{buildIsSupported, "", false},
		{oneRoute, "\nInterfaceAlias NextHop\n-------------- -------\nEthernet 2     10.0.0.1\n\n", true},
		{oneRoute, "\nInterfaceAlias NextHop\n-------------- -------\nEthernet       10.0.0.1\nEthernet 2     10.1.0.1\n", false},
		{oneRoute, "", false},
		{oneProcessEach, processes + `      812            640 C:\k\kube-log-runner.exe
      900            640 C:\k\kube-log-runner.exe
      904            900 C:\k\kubelet.exe
`, true},
		{oneProcessEach, processes + `      904            900 C:\k\kubelet.exe
      905            812 C:\k\KUBELET.exe
`, false},
		{oneProcessEach, processes, false},
		{anotherProcess, "4711\r\n4712\r\n", true},
		{anotherProcess, "4711\n4711\n", false},
		{anotherProcess, "4711\n", false},
		{anotherProcess, "4711\n4712\n4713\n", false},
		{oneIsThere, "1\n", true},
		{oneIsThere, "2\n", false},
		{oneIsThere, "Stop-Service : Cannot find any service with service name 'csi-proxy'.\n0\n", false},
		{metadataAnswers, "compute : @{azEnvironment=AzurePublicCloud}", true},
		{metadataAnswers, "Unable to connect to the remote server", false},
		{flannelsNetwork, "Name         Type    ManagementIP\n----         ----    ------------\nflannel.4096 Overlay 10.0.0.7\n" +
			"nat          NAT\n", true},
		{flannelsNetwork, "flannel.4096 Overlay 10.0.0.7\nflannel.4097 Overlay 10.0.0.7\n", false},
		{flannelsNetwork, "nat NAT\n", false},
	} {
		if err := c.judge(c.answer); (err == nil) != c.right {
			t.Errorf("%q: %v", c.answer, err)
		}
	}
}
