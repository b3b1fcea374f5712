package acceptance

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// joining returns the rows about hosts that become nodes.
func joining() map[string]trial {
	return map[string]trial{
		"A01": {stage: stageLook, try: saysWhatIsMissing,
			shows: "that the operator reports a missing key, if the key does not exist yet"},
		"A02": {stage: stageJoin, try: join, readiness: []string{extendWorker},
			shows: "that the given hosts become nodes"},
		"A04": {stage: stageNodes, try: nodesAreWhole, readiness: []string{extendWorker, coreScheduling}},
		"A05": {stage: stageNodes, try: annotationsAreRight},
		"A07": {stage: stageNodes, try: requestsWereApproved,
			shows: "that the operator's rules approved the requests of the hosts that joined"},
		"A20": {stage: stageNodes, try: upgradeableAfterwards},
	}
}

// saysWhatIsMissing tests row A01: without a private key, the condition Available must name the missing Secret.
func saysWhatIsMissing(ctx context.Context, r *run) error {
	var c *metav1.Condition
	if err := r.await(ctx, r.Timeout, "the operator saying whether it is available",
		func(ctx context.Context) (bool, string, error) {
			config, err := r.config(ctx)
			if err != nil {
				return false, "", err
			}
			c = meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAvailable)
			return c != nil, "the WindowsMachineConfig has no condition Available", nil
		}); err != nil {
		return err
	}
	switch {
	case c.Status == metav1.ConditionTrue:
		return cannot("the operator is available: the private key already exists, or no host needs it")
	case c.Reason != string(contract.ReasonPrivateKeyMissing):
		return fmt.Errorf("the operator is not available: %s: %s", c.Reason, c.Message)
	case !strings.Contains(c.Message, contract.PrivateKeySecret):
		return fmt.Errorf("the condition's message does not name the missing prerequisites: %s", c.Message)
	}
	r.note("%s: %s", c.Reason, c.Message)
	return nil
}

func (r *run) config(ctx context.Context) (*v1alpha1.WindowsMachineConfig, error) {
	config := &v1alpha1.WindowsMachineConfig{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
		return nil, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	return config, nil
}

// join tests row A02: it lists the hosts, and waits until each is a node.
func join(ctx context.Context, r *run) error {
	if len(r.Hosts) == 0 {
		return cannot("no host was given: use --host")
	}
	entries := map[string]string{}
	for _, h := range r.Hosts {
		taken, err := instanceAt(ctx, r, h.Address)
		if err != nil {
			return err
		}
		if taken != "" {
			return cannot("host %s is already the WindowsInstance %s: it is not touched", h.Address,
				taken)
		}
		entries[h.Address] = h.Settings
	}
	if err := listEntries(ctx, r, entries); err != nil {
		return err
	}
	var failed []error
	for _, h := range r.Hosts {
		failed = append(failed, ready(ctx, r, h))
	}
	return errors.Join(failed...)
}

// instanceAt returns the name of the WindowsInstance that already has this address, or an empty name.
func instanceAt(ctx context.Context, r *run, address string) (name string, err error) {
	all, err := r.instances(ctx)
	for _, i := range all {
		if strings.EqualFold(i.Spec.Address, address) {
			return i.Name, err
		}
	}
	return "", err
}

// ready waits until a listed host is a node.
func ready(ctx context.Context, r *run, h Host) error {
	err := r.await(ctx, r.JoinTimeout, "host "+h.Address+" becoming a node",
		func(ctx context.Context) (bool, string, error) {
			watchUpgradeable(ctx, r)
			i, err := r.instance(ctx, h.Address)
			if err != nil || i == nil {
				return false, state(i), err
			}
			if i.Status.Phase != v1alpha1.PhaseReady || i.Status.Reason() != string(contract.ReasonNodeReady) {
				return false, state(i), nil
			}
			if !slices.Contains(r.nodes, node{Host: h, Name: i.Status.NodeName}) {
				r.nodes = append(r.nodes, node{Host: h, Name: i.Status.NodeName})
			}
			r.note("%s is the node %s; phases: %s", h.Address, i.Status.NodeName, phases(i))
			return true, "", nil
		})
	return err
}

// phases says how long each phase of a host's join took.
func phases(i *v1alpha1.WindowsInstance) string {
	var all []string
	for _, p := range i.Status.Phases {
		if p.Milliseconds != nil {
			took := time.Duration(*p.Milliseconds) * time.Millisecond
			all = append(all, fmt.Sprintf("%s %s", p.Phase, took.Round(100*time.Millisecond)))
		}
	}
	return strings.Join(all, ", ")
}

// watchUpgradeable records whether the operator set Upgradeable to False.
func watchUpgradeable(ctx context.Context, r *run) {
	config, err := r.config(ctx)
	if err != nil {
		return
	}
	c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionUpgradeable)
	if c != nil && c.Status == metav1.ConditionFalse {
		r.unsafe = c.Message
	}
}

// upgradeableAfterwards tests the second half of row A20: Upgradeable is True again. join has tested the first half.
func upgradeableAfterwards(ctx context.Context, r *run) error {
	switch {
	case len(r.nodes) == 0:
		return cannot("no host joined in this run")
	case r.unsafe == "":
		return errors.New("Upgradeable was never False while hosts joined")
	}
	r.note("while hosts joined: %s", r.unsafe)
	busy, err := othersInProgress(ctx, r)
	if err != nil {
		return err
	}
	if busy != "" {
		return cannot("host %s, which does not belong to this run, is not Ready", busy)
	}
	return r.await(ctx, r.Timeout, "Upgradeable becoming True", func(ctx context.Context) (bool, string, error) {
		config, err := r.config(ctx)
		if err != nil {
			return false, "", err
		}
		c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionUpgradeable)
		if c == nil {
			return false, "there is no condition", nil
		}
		return c.Status == metav1.ConditionTrue, c.Message, nil
	})
}

// othersInProgress names a host of someone else that is not Ready.
func othersInProgress(ctx context.Context, r *run) (string, error) {
	all, err := r.instances(ctx)
	for _, i := range all {
		mine := slices.ContainsFunc(r.nodes, func(n node) bool { return n.Name == i.Status.NodeName })
		if !mine && i.Status.Phase != v1alpha1.PhaseReady {
			return i.Name, err
		}
	}
	return "", err
}

// targets returns the nodes to check: the nodes of this run or, if it listed none, all existing nodes.
func (r *run) targets(ctx context.Context) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	windows := client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)}
	if err := r.client.List(ctx, list, windows); err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(list.Items, func(n corev1.Node) bool {
		if len(r.nodes) == 0 {
			return n.Annotations[contract.InstanceAnnotation] == "" || !isReady(&n)
		}
		return !slices.ContainsFunc(r.nodes, func(mine node) bool { return mine.Name == n.Name })
	})
	if len(own) == 0 {
		return nil, cannot("no host became a node in this run, and no other node of the operator is Ready")
	}
	return own, nil
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nodesAreWhole tests row A04: each node must have all labels, taints and resources.
func nodesAreWhole(ctx context.Context, r *run) error {
	nodes, err := r.targets(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for i := range nodes {
		problems = append(problems, wholeNode(&nodes[i]))
		r.note("%s: kubelet %s, %s, build %s", nodes[i].Name, nodes[i].Status.NodeInfo.KubeletVersion,
			nodes[i].Status.NodeInfo.ContainerRuntimeVersion, nodes[i].Labels[contract.BuildLabel])
	}
	all := &corev1.NodeList{}
	if err = r.client.List(ctx, all); err != nil {
		return err
	}
	for i := range all.Items {
		problems = append(problems, unmarkedLinux(&all.Items[i]))
	}
	return errors.Join(problems...)
}

// wholeNode returns an error that names everything that a Windows node lacks.
func wholeNode(n *corev1.Node) error {
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("node "+n.Name+": "+format, args...))
	}
	if !isReady(n) || n.Spec.Unschedulable {
		problem("it is not Ready, or not schedulable")
	}
	for key, want := range map[string]string{contract.OSIDLabel: contract.OSIDWindows, contract.WorkerLabel: ""} {
		if got, ok := n.Labels[key]; !ok || got != want {
			problem("label %s is %q, and must be %q", key, got, want)
		}
	}
	if build := n.Labels[contract.BuildLabel]; !strings.HasPrefix(build, "10.0.") {
		problem("label %s is %q", contract.BuildLabel, build)
	}
	want := corev1.Taint{Key: contract.TaintKey, Value: contract.TaintValue, Effect: corev1.TaintEffectNoSchedule}
	if len(n.Spec.Taints) == 0 || !n.Spec.Taints[0].MatchTaint(&want) || n.Spec.Taints[0].Value != want.Value {
		problem("its first taint is not %s", want.ToString())
	}
	a := n.Status.Allocatable
	if a.Cpu().IsZero() || a.Memory().IsZero() || a.Pods().IsZero() {
		problem("allocatable is %v", a)
	}
	return errors.Join(problems...)
}

// unmarkedLinux returns an error if a Linux node has the operator's marks.
func unmarkedLinux(n *corev1.Node) error {
	if n.Labels[corev1.LabelOSStable] != string(corev1.Linux) {
		return nil
	}
	var problems []error
	for _, marks := range []map[string]string{n.Labels, n.Annotations} {
		for key := range marks {
			if strings.HasPrefix(key, contract.Prefix) {
				problems = append(problems, fmt.Errorf("the Linux node %s has %s", n.Name, key))
			}
		}
	}
	return errors.Join(problems...)
}

// annotationsAreRight tests row A05: the annotations of each node must match its WindowsInstance.
func annotationsAreRight(ctx context.Context, r *run) error {
	nodes, err := r.targets(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, n := range nodes {
		i, err := instanceOf(ctx, r, &n)
		if err != nil {
			return err
		}
		keyType, key, _ := strings.Cut(i.Status.HostKey, " ")
		for name, want := range map[string]string{
			contract.RevisionAnnotation:        i.Status.Revision,
			contract.DesiredRevisionAnnotation: i.Status.DesiredRevision,
			contract.PublicKeyHashAnnotation:   i.Status.PublicKeyHash,
			contract.HostKeyAnnotation:         key,
			contract.HostKeyTypeAnnotation:     keyType,
		} {
			if got := n.Annotations[name]; got != want || want == "" {
				problems = append(problems, fmt.Errorf("node %s: %s is %q, and must be %q", n.Name, name, got, want))
			}
		}
		r.note("%s: revision %s", n.Name, i.Status.Revision)
	}
	return errors.Join(problems...)
}

// instanceOf returns the WindowsInstance that a Node's annotation names.
func instanceOf(ctx context.Context, r *run, n *corev1.Node) (*v1alpha1.WindowsInstance, error) {
	namespace, name, _ := strings.Cut(n.Annotations[contract.InstanceAnnotation], "/")
	i := &v1alpha1.WindowsInstance{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, i); err != nil {
		return nil, fmt.Errorf("reading the WindowsInstance of node %s: %w", n.Name, err)
	}
	return i, nil
}

// approvals returns the expected reason of the operator's approval, by the requester's name.
func approvals() map[string]string {
	return map[string]string{contract.KubeletUserPrefix: "WMCOApprove", contract.DaemonUserPrefix: "WICDAutoApproved"}
}

// requestsWereApproved tests row A07: the operator must have approved the certificate requests of kubelets and daemons,
// each with the right reason.
func requestsWereApproved(ctx context.Context, r *run) error {
	if len(r.nodes) == 0 {
		return cannot("no host joined in this run, and the requests of earlier hosts are deleted after an hour")
	}
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := r.client.List(ctx, list); err != nil {
		return err
	}
	found := map[string]int{}
	var problems []error
	for i := range list.Items {
		for prefix, reason := range approvals() {
			name, ours := strings.CutPrefix(subject(&list.Items[i]), prefix)
			if !ours || !slices.ContainsFunc(r.nodes, func(n node) bool { return n.Name == name }) {
				continue
			}
			if got := approvedBecause(&list.Items[i]); got != reason {
				problems = append(problems, fmt.Errorf("request %s of %s%s is approved as %q, and must be as %s",
					list.Items[i].Name, prefix, name, got, reason))
				continue
			}
			found[list.Items[i].Spec.SignerName+" "+name]++
		}
	}
	for _, n := range r.nodes {
		for _, signer := range []string{certificatesv1.KubeAPIServerClientSignerName,
			certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName} {
			if found[signer+" "+n.Name] == 0 {
				problems = append(problems, fmt.Errorf("no request of %s for %s was approved", n.Name, signer))
			}
		}
	}
	r.note("%d requests were approved", len(found))
	return errors.Join(problems...)
}

// subject returns the common name in a certificate request.
func subject(request *certificatesv1.CertificateSigningRequest) string {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return ""
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return parsed.Subject.CommonName
}

func approvedBecause(request *certificatesv1.CertificateSigningRequest) string {
	for _, c := range request.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved {
			return c.Reason
		}
	}
	return ""
}
