package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Cluster describes the cluster at the beginning of a run.
type Cluster struct {
	// Kind is OpenShift or Kubernetes. Version is the API server's version.
	Kind, Version string
	// Available says whether the operator is available and, if not, why.
	Available string
	// Windows and Linux are the numbers of nodes. Builds lists the Windows builds.
	Windows, Linux int
	Builds         []string
}

// String describes the cluster in one line.
func (c Cluster) String() string {
	builds := after(" of builds ", strings.Join(c.Builds, ", "))
	return fmt.Sprintf("%s %s, %d Windows nodes%s, %d Linux nodes; operator: %s", c.Kind, c.Version, c.Windows, builds,
		c.Linux, c.Available)
}

// needed returns the rights that every row requires.
func needed(namespace string) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	add := func(group, resource, namespace string, verbs ...string) {
		for _, verb := range verbs {
			all = append(all, authorizationv1.ResourceAttributes{Group: group, Resource: resource, Namespace: namespace,
				Verb: verb})
		}
	}
	add(v1alpha1.GroupVersion().Group, "windowsinstances", namespace, "get", "list", "patch")
	add(v1alpha1.GroupVersion().Group, "windowsmachineconfigs", "", "get")
	add("", "configmaps", namespace, "get", "list", "create", "update", "delete")
	add("", "nodes", "", "get", "list")
	return all
}

// look checks that a run is possible, and describes the cluster.
func look(ctx context.Context, r *run) (Cluster, error) {
	found := Cluster{Kind: "Kubernetes"}
	var err error
	if found.Version, err = r.version(); err != nil {
		return found, err
	}
	groups, err := r.clients.Discovery().ServerGroups()
	if err != nil {
		return found, fmt.Errorf("asking the API server for its kinds: %w", err)
	}
	has := func(group string) bool {
		return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	}
	if has("config.openshift.io") {
		found.Kind = "OpenShift"
	}
	if !has(v1alpha1.GroupVersion().Group) {
		return found, errors.New("the operator is not installed: the cluster has no WindowsInstances")
	}
	if err = mayRun(ctx, r); err != nil {
		return found, err
	}
	config := &v1alpha1.WindowsMachineConfig{}
	err = r.client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
	if client.IgnoreNotFound(err) != nil {
		return found, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	found.Available = available(config)
	return found, countNodes(ctx, r, &found)
}

// version returns the API server's version. This is the first request: if the server doesn't answer, later requests
// don't wait for it.
func (r *run) version() (string, error) {
	version, err := r.clients.Discovery().ServerVersion()
	if err != nil {
		return "", fmt.Errorf("asking the API server for its version: %w", err)
	}
	return version.GitVersion, nil
}

// available says whether the operator is available and, if not, why.
func available(config *v1alpha1.WindowsMachineConfig) string {
	condition := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAvailable)
	switch {
	case condition == nil:
		return "it has not reported anything yet"
	case condition.Status == metav1.ConditionTrue:
		return "available"
	}
	return condition.Reason + ": " + condition.Message
}

func countNodes(ctx context.Context, r *run, found *Cluster) error {
	list := &corev1.NodeList{}
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range list.Items {
		if n.Labels[corev1.LabelOSStable] != string(corev1.Windows) {
			found.Linux++
			continue
		}
		found.Windows++
		if build := n.Labels[contract.BuildLabel]; build != "" && !slices.Contains(found.Builds, build) {
			found.Builds = append(found.Builds, build)
		}
	}
	slices.Sort(found.Builds)
	return nil
}

// mayRun returns an error that names the missing rights.
func mayRun(ctx context.Context, r *run) error {
	var lacking []string
	for _, attributes := range needed(r.Namespace) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &attributes}}
		reviews := r.clients.AuthorizationV1().SelfSubjectAccessReviews()
		answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("asking the API server for rights: %w", err)
		}
		if !answer.Status.Allowed {
			lacking = append(lacking,
				attributes.Verb+" "+attributes.Resource+after(" in namespace ", attributes.Namespace))
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("these rights are lacking: %s", strings.Join(lacking, ", "))
	}
	return nil
}
