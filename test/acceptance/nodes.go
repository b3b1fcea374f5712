package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// nodesOfOurs returns the rows about existing nodes.
func nodesOfOurs() map[string]trial {
	return map[string]trial{
		"A03": {stage: stageLook, try: machinesAreNodes, readiness: []string{extendWorker},
			shows: "that the existing Machines are Ready nodes"},
		"A15": {stage: stageDisrupt, try: versionComesBack,
			shows: "that a removed version annotation is restored"},
		"A30": {stage: stageDisrupt, try: reboots,
			shows: "a reboot by annotation, of one of the run's own hosts"},
		"A40": {stage: stageNodes, try: initialisedOnAzure},
		"A61": {stage: stageNodes, try: kubeletFits,
			shows: "the minor version that the API server has"},
	}
}

// node reads a node of this run.
func (r *run) node(ctx context.Context, name string) (*corev1.Node, error) {
	n := &corev1.Node{}
	return n, r.client.Get(ctx, client.ObjectKey{Name: name}, n)
}

// annotate sets an annotation on a node of this run. A nil value removes the annotation.
func annotate(ctx context.Context, r *run, n *corev1.Node, name string, value *string) error {
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", *value)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, name, text)
	return r.client.Patch(ctx, n.DeepCopy(), mergePatch(patch))
}

// machinesAreNodes tests row A03: each Machine with the Windows label must be a Ready node.
func machinesAreNodes(ctx context.Context, r *run) error {
	all, err := r.instances(ctx)
	if err != nil {
		return err
	}
	var problems []error
	machines := 0
	for i := range all {
		instance := &all[i]
		if source := instance.Spec.Source; source == nil || source.Kind != v1alpha1.SourceMachine {
			continue
		}
		if machines++; instance.Status.Phase != v1alpha1.PhaseReady {
			problems = append(problems, fmt.Errorf("Machine %s: %s", instance.Name, state(instance)))
		}
	}
	if machines == 0 {
		return cannot("there is no Machine with the Windows label")
	}
	r.note("%d Machines", machines)
	return errors.Join(problems...)
}

// versionComesBack tests row A15: it removes the version annotation of a node. The operator must restore it, and pods
// of DaemonSets must survive.
func versionComesBack(ctx context.Context, r *run) error {
	if len(r.nodes) == 0 {
		return cannot("no host joined in this run, and the run does not touch other nodes")
	}
	before, err := r.node(ctx, r.nodes[0].Name)
	if err != nil {
		return err
	}
	pods, err := daemonPods(ctx, r, before.Name)
	if err != nil {
		return err
	}
	if err = annotate(ctx, r, before, contract.RevisionAnnotation, nil); err != nil {
		return err
	}
	want := before.Annotations[contract.RevisionAnnotation]
	if err = r.await(ctx, r.Timeout, "the version coming back", func(ctx context.Context) (bool, string, error) {
		now, err := r.node(ctx, before.Name)
		got := now.Annotations[contract.RevisionAnnotation]
		return got == want, fmt.Sprintf("the annotation is %q", got), err
	}); err != nil {
		return err
	}
	after, err := daemonPods(ctx, r, before.Name)
	if err != nil {
		return err
	}
	for name := range pods {
		if after[name] != pods[name] {
			return wrongf("pod %s of a DaemonSet did not survive", name)
		}
	}
	r.note("%d pods of DaemonSets are on the node", len(pods))
	return ready(ctx, r, r.nodes[0].Host)
}

// daemonPods returns the pods of DaemonSets on a node, with their UIDs.
func daemonPods(ctx context.Context, r *run, name string) (map[string]string, error) {
	all, err := podsOn(ctx, r.clients, name)
	pods := map[string]string{}
	for _, pod := range all {
		if owner := metav1.GetControllerOf(&pod); owner != nil && owner.Kind == "DaemonSet" {
			pods[pod.Namespace+"/"+pod.Name] = string(pod.UID)
		}
	}
	return pods, err
}

func podsOn(ctx context.Context, clients kubernetes.Interface, node string) ([]corev1.Pod, error) {
	list, err := clients.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// reboots tests row A30: it requests a reboot by annotation, and waits until the node is Ready with a new boot ID.
func reboots(ctx context.Context, r *run) error {
	if len(r.nodes) == 0 {
		return cannot("no host joined in this run, and the run does not reboot other nodes")
	}
	before, err := r.node(ctx, r.nodes[0].Name)
	if err != nil {
		return err
	}
	boot := before.Annotations[contract.BootIDAnnotation]
	if boot == "" {
		return wrongf("node %s has no boot ID", before.Name)
	}
	requested := "wmco-e2e"
	if err = annotate(ctx, r, before, contract.RebootRequestedAnnotation, &requested); err != nil {
		return err
	}
	cordoned := false
	if err = r.await(ctx, r.JoinTimeout, "the reboot of "+before.Name,
		func(ctx context.Context) (bool, string, error) {
			now, err := r.node(ctx, before.Name)
			if err != nil {
				return false, "", err
			}
			cordoned = cordoned || now.Spec.Unschedulable
			_, asked := now.Annotations[contract.RebootRequestedAnnotation]
			i, err := r.instance(ctx, r.nodes[0].Host.Address)
			if err != nil || i == nil {
				return false, state(i), err
			}
			done := !asked && now.Annotations[contract.BootIDAnnotation] != boot && isReady(now) &&
				!now.Spec.Unschedulable
			return done && i.Status.Phase == v1alpha1.PhaseReady, state(i), nil
		}); err != nil {
		return err
	}
	if !cordoned {
		r.note("the cordon was too short for the run to see it")
	}
	r.note("the boot ID was %s, and has changed", boot)
	return ready(ctx, r, r.nodes[0].Host)
}

// initialisedOnAzure tests row A40: each node on Azure must be initialised, with addresses and a zone.
func initialisedOnAzure(ctx context.Context, r *run) error {
	nodes, err := r.targets(ctx)
	if err != nil {
		return err
	}
	var problems []error
	tried := 0
	for _, n := range nodes {
		if !strings.HasPrefix(n.Spec.ProviderID, "azure://") {
			continue
		}
		tried++
		if uninitialised(&n) || n.Labels[corev1.LabelTopologyZone] == "" || len(n.Status.Addresses) == 0 {
			problems = append(problems, fmt.Errorf("node %s is not initialised: taints %v, addresses %v, zone %q",
				n.Name, n.Spec.Taints, n.Status.Addresses, n.Labels[corev1.LabelTopologyZone]))
		}
	}
	if tried == 0 {
		return cannot("no node is on Azure")
	}
	return errors.Join(problems...)
}

// uninitialised reports whether a node still has the taint of an uninitialised cloud node.
func uninitialised(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "node.cloudprovider.kubernetes.io/uninitialized"
	})
}

// kubeletFits tests row A61: a kubelet may not be newer than the API server.
func kubeletFits(ctx context.Context, r *run) error {
	nodes, err := r.targets(ctx)
	if err != nil {
		return err
	}
	server, err := version.ParseGeneric(r.cluster.Version)
	if err != nil {
		return err
	}
	var problems []error
	for _, n := range nodes {
		kubelet, err := version.ParseGeneric(n.Status.NodeInfo.KubeletVersion)
		if err != nil || kubelet.Major() != server.Major() || kubelet.Minor() != server.Minor() {
			problems = append(problems, fmt.Errorf("kubelet of %s is %s, and the API server is %s: %w", n.Name,
				n.Status.NodeInfo.KubeletVersion, r.cluster.Version, err))
		}
	}
	return errors.Join(problems...)
}
