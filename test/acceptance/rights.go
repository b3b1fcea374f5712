package acceptance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// rights returns the rows about access rights.
func rights() map[string]trial {
	return map[string]trial{
		"A34": {stage: stageNodes, try: daemonIsKeptToItsNode,
			shows: "the rights of a daemon, by impersonation and with dry runs"},
		"A35": {stage: stageLeave, try: noSecretIsToldByObjects,
			shows: "that no private key is in statuses, annotations and events"},
		"A36": {stage: stageLook, try: operatorIsConfined,
			shows: "that the operator's pod is non-root with a read-only root file system"},
	}
}

// daemonIsKeptToItsNode tests row A34: it impersonates a daemon. The API server must refuse every access beyond the
// daemon's own Node.
func daemonIsKeptToItsNode(ctx context.Context, r *run) error {
	nodes, err := r.targets(ctx)
	if err != nil {
		return err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Resource: "users", Verb: "impersonate"}}}
	answer, err := r.clients.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !answer.Status.Allowed {
		return cannot("this row needs the right to impersonate users")
	}
	own := nodes[0]
	config := rest.CopyConfig(r.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: contract.DaemonUserPrefix + own.Name,
		Groups: []string{contract.DaemonGroup, "system:authenticated"}}
	daemon, _, err := connect(config, r.availability)
	if err != nil {
		return err
	}
	// First, an allowed write must succeed. If the wrong user were impersonated, the API server would refuse every
	// request, and this row would prove nothing.
	same := own.Annotations[contract.RevisionAnnotation]
	if err = patchNode(ctx, daemon, own.Name, annotated(contract.RevisionAnnotation, same+"x")); err != nil {
		return fmt.Errorf("the daemon of %s may not write its own Node's version: %w", own.Name, err)
	}
	var problems []error
	tried := 0
	refused := func(what string, err error) {
		if tried++; !apierrors.IsForbidden(err) {
			problems = append(problems, fmt.Errorf("the daemon of %s was not refused %s: %w", own.Name, what,
				errors.Join(err, errors.New("the API server must answer Forbidden"))))
		}
	}
	if other, err := otherNode(ctx, r, own.Name); err != nil {
		return err
	} else if other != "" {
		refused("writing node "+other, patchNode(ctx, daemon, other, annotated(contract.RevisionAnnotation, "x")))
	}
	for what, patch := range map[string]string{
		"writing its labels":           `{"metadata":{"labels":{"wmco-e2e":"x"}}}`,
		"removing its taints":          `{"spec":{"taints":null}}`,
		"its desired version":          annotated(contract.DesiredRevisionAnnotation, "x"),
		"approving its own reboot":     annotated(contract.RebootApprovedAnnotation, "x"),
		"an annotation of its own":     annotated("example.com/wmco-e2e", "x"),
		"saying whose host it is":      annotated(contract.InstanceAnnotation, "x/y"),
		"its place among the schedule": `{"spec":{"unschedulable":true}}`,
	} {
		refused(what, patchNode(ctx, daemon, own.Name, patch))
	}
	get := func(object client.Object, namespace, name string) error {
		return daemon.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	}
	refused("reading the private key", get(&corev1.Secret{}, r.Namespace, contract.PrivateKeySecret))
	refused("reading windows-instances", get(&corev1.ConfigMap{}, r.Namespace, contract.InstancesConfigMap))
	refused("listing Secrets", daemon.List(ctx, &corev1.SecretList{}, client.Limit(1)))
	refused("listing ConfigMaps", daemon.List(ctx, &corev1.ConfigMapList{}, client.Limit(1)))
	refused("listing pods", daemon.List(ctx, &corev1.PodList{}, client.Limit(1)))
	r.note("%d requests were made as the daemon of %s; one of them had to succeed", tried+1, own.Name)
	return errors.Join(problems...)
}

// patchNode sends a patch of a Node as a dry run.
func patchNode(ctx context.Context, c client.Client, name, patch string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return c.Patch(ctx, n, mergePatch(patch), client.DryRunAll)
}

func annotated(name, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value)
}

// otherNode returns the name of another Node, or an empty name.
func otherNode(ctx context.Context, r *run, own string) (string, error) {
	list := &corev1.NodeList{}
	err := r.client.List(ctx, list)
	for _, n := range list.Items {
		if n.Name != own {
			return n.Name, err
		}
	}
	return "", err
}

// noSecretIsToldByObjects tests row A35: no private key may be in WindowsInstances, events and annotations.
func noSecretIsToldByObjects(ctx context.Context, r *run) error {
	instances, events, nodes := &v1alpha1.WindowsInstanceList{}, &corev1.EventList{}, &corev1.NodeList{}
	if err := errors.Join(r.client.List(ctx, instances, client.InNamespace(r.Namespace)),
		r.client.List(ctx, events, client.InNamespace(r.Namespace)), r.client.List(ctx, nodes)); err != nil {
		return err
	}
	var problems []error
	looked := 0
	look := func(what string, text any) {
		if looked++; strings.Contains(fmt.Sprint(text), "PRIVATE KEY") {
			problems = append(problems, fmt.Errorf("a private key is in %s", what))
		}
	}
	for i := range instances.Items {
		look("WindowsInstance "+instances.Items[i].Name, instances.Items[i])
	}
	for i := range events.Items {
		look("event "+events.Items[i].Name, events.Items[i].Message)
	}
	for i := range nodes.Items {
		look("node "+nodes.Items[i].Name, nodes.Items[i].Annotations)
	}
	r.note("%d objects were searched", looked)
	return errors.Join(problems...)
}

// operatorIsConfined tests row A36: the operator's pod must be non-root with a read-only root file system.
func operatorIsConfined(ctx context.Context, r *run) error {
	list := &appsv1.DeploymentList{}
	if err := r.client.List(ctx, list, client.InNamespace(r.Namespace),
		client.MatchingLabels{"app.kubernetes.io/name": contract.OperatorServiceAccount}); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return cannot("the operator has no Deployment in namespace %s", r.Namespace)
	}
	pod := list.Items[0].Spec.Template.Spec
	if pod.SecurityContext == nil || pod.SecurityContext.RunAsNonRoot == nil || !*pod.SecurityContext.RunAsNonRoot {
		return wrongf("the operator's pod may run as root")
	}
	for _, c := range pod.Containers {
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			return wrongf("container %s of the operator may write its root file system", c.Name)
		}
	}
	return nil
}
