package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// maxEvents is the maximum number of events in a diagnosis. A node may create any number.
const maxEvents = 200

// If a daemon's certificate expires within certificateNotice, there is a notice. A daemon renews its certificate after
// 60 to 70 % of 14 days. So if only four days are left, the renewal is overdue.
const certificateNotice = 4 * 24 * time.Hour

// Severity distinguishes problems and notices.
type Severity string

const (
	// Problem is a finding that keeps the subject from its desired state.
	Problem Severity = "problem"
	// Notice is a finding for information: the subject waits without a failure, or it will soon have a problem.
	Notice Severity = "notice"
)

// Finding is one cause of the symptom, with its fix.
type Finding struct {
	Severity Severity `json:"severity"`
	// About is the part of the subject that the finding is about, such as "daemon".
	About   string `json:"about"`
	Code    string `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// Fact is one line about the subject.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Event is an event about the subject.
type Event struct {
	Time    metav1.Time `json:"time"`
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	Object  string      `json:"object"`
	Message string      `json:"message"`
	Count   int32       `json:"count,omitempty"`
}

// Diagnosis explains one subject: its symptom, causes and fixes.
type Diagnosis struct {
	Subject  string    `json:"subject"`
	Symptom  string    `json:"symptom"`
	Findings []Finding `json:"findings"`
	Facts    []Fact    `json:"facts"`
	Events   []Event   `json:"events,omitempty"`
	Unread   []string  `json:"unread,omitempty"`
}

// Healthy reports whether the diagnosis contains no problem.
func (d *Diagnosis) Healthy() bool {
	return !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Severity == Problem })
}

func (d *Diagnosis) add(severity Severity, about string, reason contract.Reason, format string, args ...any) {
	f := Finding{Severity: severity, About: about, Reason: string(reason), Message: fmt.Sprintf(format, args...)}
	if reason.Known() {
		f.Code, f.Fix = reason.Code(), reason.Fix()
	}
	d.Findings = append(d.Findings, f)
}

func (d *Diagnosis) fact(name, format string, args ...any) {
	if value := strings.TrimSpace(fmt.Sprintf(format, args...)); value != "" {
		d.Facts = append(d.Facts, Fact{name, value})
	}
}

// order puts problems before notices and removes duplicates. It sorts events, the newest first, and keeps maxEvents of
// them.
func (d *Diagnosis) order() {
	once := []Finding{}
	for _, f := range d.Findings {
		if !slices.ContainsFunc(once, func(o Finding) bool { return o.Reason == f.Reason && o.Message == f.Message }) {
			once = append(once, f)
		}
	}
	slices.SortStableFunc(once, func(a, b Finding) int {
		return cmp.Compare(b.Severity, a.Severity) // descending, so problem comes before notice
	})
	d.Findings = once
	slices.SortStableFunc(d.Events, func(a, b Event) int { return b.Time.Compare(a.Time.Time) })
	d.Events = d.Events[:min(len(d.Events), maxEvents)]
}

// OfHost explains the state of a host. instance and node are nil if the host has no WindowsInstance or no Node.
func OfHost(instance *v1alpha1.WindowsInstance, node *corev1.Node, s Snapshot, events []Event) Diagnosis {
	d := Diagnosis{Facts: []Fact{}, Unread: s.Unread, Events: events}
	if o := operator(s.Lease, s.Now); o.Problem != "" {
		d.add(Problem, "operator", "", "%s", o.Problem)
	}
	var symptoms []string
	if instance != nil {
		d.Subject = "host " + instance.Name
		symptoms = append(symptoms, d.instance(instance, s))
	}
	if node != nil {
		d.Subject = strings.TrimPrefix(d.Subject+", node "+node.Name, ", ")
		symptoms = append(symptoms, d.node(node, s.Now))
		if instance == nil && !s.InstancesUnread && isOperators(node) {
			d.add(Problem, "node", contract.ReasonNodeOrphaned, "node %s has no WindowsInstance: no operator of this "+
				"namespace looks after it", node.Name)
		}
	}
	d.Symptom = strings.Join(symptoms, "; ")
	d.order()
	return d
}

// isOperators reports whether the operator or its daemon has marked a Node. Other tools also join Windows nodes, and
// such nodes need no WindowsInstance. CordonedAnnotation counts as well: when the operator cordons an orphaned Node, it
// removes the annotation with the name of the instance.
func isOperators(node *corev1.Node) bool {
	return policy.IsOurs(node) || node.Annotations[contract.CordonedAnnotation] == "true"
}

// instance adds findings about a WindowsInstance, and returns the symptom of the host.
func (d *Diagnosis) instance(i *v1alpha1.WindowsInstance, s Snapshot) string {
	host, status := HostOf(i), &i.Status
	ago := func(t metav1.Time) string { return (&paper{Style: Style{Now: s.Now}}).age(t) }
	if host.Reason != "" {
		severity := Notice
		if host.Failing || !host.Ready {
			severity = Problem
		}
		d.Findings = append(d.Findings, Finding{severity, "host", host.Code, host.Reason, host.Message,
			cmp.Or(host.Fix, contract.Reason(host.Reason).Fix())})
	}
	d.conditions(i)
	if f := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUpdateFailed); f != nil {
		d.Findings = append(d.Findings, Finding{Problem, "upgrade", contract.Reason(f.Reason).Code(), "", fmt.Sprintf(
			"revision %s failed %s ago and the node went back: %s", status.FailedRevision, ago(f.LastTransitionTime),
			f.Message),
			"Correct what the message names. The operator tries another revision at once, " +
				"" + triedAgain(status.FailedRevision, s)})
	}
	if k := status.KeyRefusal; k != nil {
		d.add(Problem, "key", contract.ReasonKeyRefused, "the host has refused the private key for %s, last %s ago",
			ago(k.Since), ago(k.Time))
	}
	d.turn(i, s)
	d.instanceFacts(i, host)
	symptom := fmt.Sprintf("%s for %s", strings.TrimSuffix(string(host.Phase)+", step "+string(host.Step), ", step "),
		ago(host.Since))
	if i.Spec.Paused {
		symptom += ", paused"
	}
	return symptom
}

func triedAgain(revision string, s Snapshot) string {
	if r := s.Config.Status.Rollout; r.Phase == v1alpha1.RolloutHalted && r.Revision == revision {
		return "and this one after you resume its rollout: kubectl windows resume --rollout"
	}
	return "and this one again after a minute, then after two, four and up to thirty minutes, unless its rollout is " +
		"halted."
}

// conditions adds a problem for each condition that is False. It skips conditions with the same reason as the host,
// because the diagnosis already contains that reason.
func (d *Diagnosis) conditions(i *v1alpha1.WindowsInstance) {
	for _, c := range i.Status.Conditions {
		if c.Status != metav1.ConditionFalse || c.Type == v1alpha1.ConditionReady ||
			c.Type == v1alpha1.ConditionProgressing || c.Reason == i.Status.Reason() {
			continue
		}
		d.add(Problem, c.Type, contract.Reason(c.Reason), "%s", c.Message)
	}
}

// turn explains why a host waits for its slot in the rollout budget. It adds nothing if the host doesn't wait.
func (d *Diagnosis) turn(i *v1alpha1.WindowsInstance, s Snapshot) {
	activity := i.Status.Activity
	if activity == nil || activity.Step != v1alpha1.StepWaiting {
		return
	}
	rollout := Summarize(s).Rollout
	var holders []string
	for _, slot := range rollout.Slots {
		holders = append(holders, slot.Node)
	}
	d.fact("rollout", "%s", strings.TrimSuffix(fmt.Sprintf("%s; maxUnavailable %s, in use by %d: %s", cmp.Or(
		rollout.Message, string(rollout.Phase), "unknown"), rollout.MaxUnavailable, len(holders),
		contract.Few(holders, maxNamed, ", ")), ": "))
	if rollout.Phase == v1alpha1.RolloutHalted {
		d.add(Problem, "rollout", contract.ReasonRolloutHalted, "%s", rollout.Message)
	}
	if rollout.Closed != "" {
		d.add(Notice, "rollout", contract.ReasonMaintenanceWindowClosed, "%s", rollout.Closed)
	}
}

func (d *Diagnosis) instanceFacts(i *v1alpha1.WindowsInstance, host Host) {
	source := "created by a user"
	if i.Spec.Source != nil {
		source = fmt.Sprintf("%s %s", i.Spec.Source.Kind, i.Spec.Source.Name)
	}
	if i.Spec.ByItself != nil {
		d.fact("joins", "by itself, without SSH")
	} else {
		d.fact("address", "%s:%d, user %s", i.Spec.Address, cmp.Or(i.Spec.Port, contract.SSHPort), i.Spec.Username)
	}
	d.fact("source", "%s", source)
	if h := i.Status.Host; h != nil {
		d.fact("windows", "%s", h.Windows)
	}
	d.fact("revision", "%s, desired %s, last verified %s", cmp.Or(host.Revision, "none"), cmp.Or(host.Desired, "none"),
		cmp.Or(i.Status.HeldRevision, "none"))
	if i.Status.Failures > 0 {
		d.fact("attempts", "%d failed", i.Status.Failures)
	}
	if next := policy.NextAttempt(i); !next.IsZero() {
		d.fact("next attempt", "%s", next.UTC().Format(time.RFC3339))
	}
	for _, phase := range i.Status.Phases {
		took := "now"
		if phase.Milliseconds != nil {
			took = (time.Duration(*phase.Milliseconds) * time.Millisecond).String()
		}
		d.fact("phase "+string(phase.Phase), "%s", took)
	}
}

// node adds findings about a Node and about the annotations of its daemon. It returns the symptom of the Node.
func (d *Diagnosis) node(n *corev1.Node, now time.Time) string {
	ago := func(t metav1.Time) string { return (&paper{Style: Style{Now: now}}).age(t) }
	for _, c := range n.Status.Conditions {
		isReady := c.Type == corev1.NodeReady
		if c.Status == corev1.ConditionTrue && isReady || c.Status != corev1.ConditionTrue && !isReady {
			continue
		}
		reason := contract.Reason("")
		if isReady {
			reason = contract.ReasonNodeNotReady
		}
		d.add(Problem, "node", reason, "%s is %s for %s: %s: %s", c.Type, c.Status, ago(c.LastTransitionTime), c.Reason,
			c.Message)
	}
	if n.Spec.Unschedulable && n.Annotations[contract.CordonedAnnotation] != "true" {
		d.Findings = append(d.Findings, Finding{Notice, "node", "", "", "it is cordoned, and not by the operator",
			"kubectl uncordon " + n.Name})
	}
	d.daemon(n, now)
	d.fact("kubelet", "%s, %s, %s", n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.OSImage,
		n.Status.NodeInfo.KernelVersion)
	ready := nodeReady(n)
	return fmt.Sprintf("node Ready is %s for %s", ready.Status, ago(ready.LastTransitionTime))
}

func (d *Diagnosis) daemon(n *corev1.Node, now time.Time) {
	note := n.Annotations
	for _, key := range []string{contract.ApplyStatusAnnotation, contract.StageStatusAnnotation} {
		if text := note[key]; text != "" {
			reason, detail, _ := strings.Cut(text, ": ")
			d.add(Problem, "daemon", contract.Reason(reason), "%s: %s", strings.TrimPrefix(key, contract.Prefix),
				detail)
		}
	}
	if have, want := note[contract.RevisionAnnotation], note[contract.DesiredRevisionAnnotation]; have != want {
		d.add(Notice, "daemon", contract.ReasonRevisionPending, "it applies %s and has %s", want, cmp.Or(have, "none"))
	}
	if _, required := note[contract.RebootRequiredAnnotation]; required {
		d.add(Notice, "reboot", "", "the annotation reboot-required requests a reboot; the operator reboots the host "+
			"when the rollout budget allows it")
	}
	if signs := note[contract.RebootPendingAnnotation]; signs != "" {
		d.Findings = append(d.Findings, Finding{Notice, "reboot", "", "", "Windows waits for a reboot: " + signs,
			"kubectl windows reboot " + n.Name + ", or set spec.rollout.rebootWhenPending."})
	}
	text, reported := note[contract.CertificateEndAnnotation]
	if !reported {
		return
	}
	end, err := time.Parse(time.RFC3339, text)
	switch left := end.Sub(now); {
	case err != nil:
		d.add(Notice, "certificate", "", "the daemon reports an end that is no time: %q", text)
	case left <= 0:
		d.add(Problem, "certificate", contract.ReasonDaemonUnresponsive, "the daemon's certificate ended at %s", text)
	case left < certificateNotice:
		d.add(Notice, "certificate", "", "the daemon's certificate ends at %s and was not renewed", text)
	}
	d.fact("certificate", "of the daemon, until %s", text)
}
