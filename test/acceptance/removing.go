package acceptance

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// removing returns the rows about hosts that leave, and rows whose conditions hold after hosts have joined and left.
func removing() map[string]trial {
	return map[string]trial{
		"A32": {stage: stageLeave, try: leaveAndJoinAgain,
			shows: "that the Node and the WindowsInstance are deleted, that other entries stay, " +
				"and that the host can join again"},
		"A60": {stage: stageLeave, try: plainCluster, shows: "the one network that the cluster has"},
		"A63": {stage: stageLeave, try: anyNamespace},
		"A76": {stage: stageLeave, try: runsHere, shows: "that the program runs on this cluster"},
	}
}

// leaveAndJoinAgain tests row A32. The clean-up of the run removes the host a second time.
func leaveAndJoinAgain(ctx context.Context, r *run) error {
	if len(r.nodes) == 0 {
		return cannot("no host joined")
	}
	h, nodeName := r.nodes[0].Host, r.nodes[0].Name
	before, err := othersEntries(ctx, r)
	if err != nil {
		return err
	}
	removed, err := unlist(ctx, r, func(key string, m mark) bool { return key == h.Address && m.Run == r.id })
	if err != nil {
		return err
	}
	if len(removed) == 0 {
		return cannot("someone has changed the entry of %s", h.Address)
	}
	if err = gone(ctx, r, removed); err != nil {
		return err
	}
	if err = r.client.Get(ctx, client.ObjectKey{Name: nodeName}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		return wrongf("node %s still exists after its host left: %v", nodeName, err)
	}
	after, err := othersEntries(ctx, r)
	if err != nil {
		return err
	}
	if !maps.Equal(before, after) {
		return wrongf("entries that do not belong to this run have changed: they are %v, and were %v",
			slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
	r.note("%s left, and can join again", h.Address)
	r.nodes = r.nodes[1:]
	if err = listEntries(ctx, r, map[string]string{h.Address: h.Settings}); err != nil {
		return err
	}
	return ready(ctx, r, h)
}

// othersEntries returns the entries of windows-instances that don't belong to this run.
func othersEntries(ctx context.Context, r *run) (map[string]string, error) {
	list := &corev1.ConfigMap{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: contract.InstancesConfigMap}, list)
	others := map[string]string{}
	marks := marksOf(list)
	for key, settings := range inventory.Values(list) {
		if marks[key].Run != r.id {
			others[key] = settings
		}
	}
	return others, client.IgnoreNotFound(err)
}

// plainCluster tests row A60: on a plain cluster, hosts join and leave, and no namespace of OpenShift exists.
func plainCluster(ctx context.Context, r *run) error {
	if r.cluster.Kind != "Kubernetes" {
		return cannot("the cluster is %s", r.cluster.Kind)
	}
	if !r.shown["A02"] || !r.shown["A32"] {
		return cannot("this row needs hosts that join (A02) and leave (A32)")
	}
	namespaces := &corev1.NamespaceList{}
	if err := r.client.List(ctx, namespaces); err != nil {
		return err
	}
	for _, n := range namespaces.Items {
		if strings.HasPrefix(n.Name, "openshift-") && n.Name != r.Namespace {
			return wrongf("the namespace %s exists", n.Name)
		}
	}
	return nil
}

// anyNamespace tests row A63: hosts join with an operator that does not run in its default namespace.
func anyNamespace(_ context.Context, r *run) error {
	switch {
	case r.Namespace == contract.OperatorNamespace:
		return cannot("the operator runs in its default namespace")
	case !r.shown["A02"]:
		return cannot("no host joined")
	}
	return nil
}

// runsHere tests row A76: the program runs against a user's cluster. It needs no check.
func runsHere(context.Context, *run) error { return nil }
