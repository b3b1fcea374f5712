package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/lint"
	"github.com/windows-nodes/wmco/internal/policy"
)

// PodTemplate converts a live pod to the type that lint checks.
func PodTemplate(pod *corev1.Pod) lint.Template {
	return lint.Template{Object: lint.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}, Path: "spec",
		Spec: pod.Spec}
}

// OfPod explains why a pod does not run. findings is the result of lint.Check for the pod. If lint asked the
// registries, the findings include problems of images.
func OfPod(pod *corev1.Pod, classes []nodev1.RuntimeClass, findings []lint.Finding, s Snapshot,
	events []Event) Diagnosis {
	d := Diagnosis{Facts: []Fact{}, Subject: "pod " + pod.Namespace + "/" + pod.Name,
		Unread: s.Unread, Events: events, Symptom: string(pod.Status.Phase)}
	node := slices.IndexFunc(s.Nodes, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName })
	if reason, why := policy.MisplacedPod(pod); reason != "" && node >= 0 {
		d.add(Problem, "placement", reason, "the pod %s, and is on Windows node %s", why, pod.Spec.NodeName)
	}
	// Don't wait for an autoscaler. The operator waits for it, but the user of the plugin wants an answer now.
	if reason, why := policy.UnplaceablePod(pod, s.Nodes, s.Now, 0); reason != "" {
		d.add(Problem, "placement", reason, "%s", why)
	}
	for _, f := range findings {
		severity := Notice
		if f.Severity == lint.Error {
			severity = Problem
		}
		d.Findings = append(d.Findings, Finding{severity, f.Field, "", f.Rule, f.Message, f.Fix})
	}
	d.running(pod)
	for _, e := range events { // each attempt to start has its own event; report each fix once
		fix := startFix(e.Message)
		isKnown := slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Fix == fix })
		if e.Type == corev1.EventTypeWarning && fix != "" && !isKnown {
			d.Findings = append(d.Findings, Finding{Problem, "event", "", e.Reason, e.Message, fix})
		}
	}
	switch {
	case node >= 0:
		if c := nodeReady(&s.Nodes[node]); c.Status != corev1.ConditionTrue {
			d.add(Problem, "node", contract.ReasonNodeNotReady, "node %s is not Ready: %s", pod.Spec.NodeName,
				c.Message)
			d.Findings[len(d.Findings)-1].Fix = "kubectl windows why node/" + pod.Spec.NodeName
		}
		d.fact("node", "%s, build %s", pod.Spec.NodeName, s.Nodes[node].Labels[contract.BuildLabel])
	case pod.Spec.NodeName != "":
		d.fact("node", "%s, which is no Windows node", pod.Spec.NodeName)
	}
	if class := pod.Spec.RuntimeClassName; class != nil {
		if !slices.ContainsFunc(classes, func(c nodev1.RuntimeClass) bool { return c.Name == *class }) {
			d.add(Problem, "placement", "", "there is no RuntimeClass %s", *class)
		}
		d.fact("RuntimeClass", "%s", *class)
	}
	d.fact("builds", "%s", contract.Few(lint.ClusterOf(s.Nodes, classes).Builds, maxNamed, ", "))
	d.order()
	return d
}

// startFix returns the fix for a message of kubelet or the container runtime about a container that doesn't start. If
// it doesn't know the message, it returns an empty string. The first row whose text occurs in the message counts.
func startFix(report string) string {
	for _, row := range []struct{ text, fix string }{
		{"non-root policy", "Set securityContext.windowsOptions.runAsUserName to ContainerUser, or remove " +
			"runAsNonRoot."},
		{"CreateContainerConfigError", "Create the object or the key that the message names in the pod's namespace, " +
			"or " +
			"correct its name in the pod."},
		{"0xc0370106", "Windows ended the container while it started. Use an image for the build of the node; " +
			"--images " +
			"checks that. If it is, see whether the node has enough memory, and set requests.memory."},
		{"x509: certificate signed by unknown authority", "Add the registry's CA to the ConfigMap that " +
			"spec.trust.additionalCA of the WindowsMachineConfig names, or on OpenShift to the cluster's Image " +
			"object."},
	} {
		if strings.Contains(report, row.text) {
			return row.fix
		}
	}
	return ""
}

// `running` adds the problems that the scheduler and kubelet report in the pod's status.
func (d *Diagnosis) running(pod *corev1.Pod) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			d.Symptom += ", " + c.Reason
			d.add(Problem, "scheduler", "", "%s", c.Message)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			d.Symptom += ", " + w.Reason
			text := fmt.Sprintf("%s: %s, image %s", w.Reason, w.Message, c.Image)
			d.Findings = append(d.Findings, Finding{Problem, "container " + c.Name, "", "", text, startFix(text)})
		}
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			d.add(Problem, "container "+c.Name, "", "ended with code %d: %s %s", t.ExitCode, t.Reason, t.Message)
		}
		if t := c.LastTerminationState.Terminated; t != nil && c.RestartCount > 0 {
			d.fact("container "+c.Name, "%s", fmt.Sprintf("restarted %d times, last with code %d %s", c.RestartCount,
				t.ExitCode, t.Reason))
		}
	}
}
