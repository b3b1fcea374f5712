package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/lint"
)

// Kinds that the user can put before a name, such as pod/web.
const (
	kindHost = "host"
	kindNode = "node"
	kindPod  = "pod"
)

func (p *plugin) whyCommand() *cobra.Command {
	images := false
	command := &cobra.Command{
		Use:   "why HOST|NODE|POD",
		Short: "Explain what is wrong with a host, node or pod, and what to do",
		Long: `Explain what is wrong with a host, node or pod: the symptom, its causes, and the fix for each
cause. For a host or node, why shows its phase, reason, failed attempts and upgrades, the daemon's
report and certificate, its turn in the rollout, and events. For a pod for Windows, why shows its
build, operating system, tolerations and image, and the reports of the scheduler and kubelet.

Name a host by its WindowsInstance, its address or its node. If a name is ambiguous, add its kind:
host/NAME, node/NAME, pod/NAME. Pods are searched in the namespace of -n. The exit code is 2 if there
is a problem.`,
		Example: `  kubectl windows why 10.0.0.7
  kubectl windows why node/win-7

  # Explain a pod, and ask its registry which Windows builds its images support
  kubectl windows why pod/web-0 -n shop --images`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeHosts,
		RunE: func(command *cobra.Command, args []string) error {
			r, err := p.connect()
			if err != nil {
				return err
			}
			found, err := r.why(command.Context(), args[0], images)
			if err != nil {
				return err
			}
			return p.show(&found, nil)
		},
	}
	command.Flags().BoolVar(&images, "images", false, "ask registries which Windows builds a pod's images support")
	p.outputFlag(command, "wide", "json", "yaml")
	return command
}

type subject struct {
	instance *v1alpha1.WindowsInstance
	node     *corev1.Node
	pod      *corev1.Pod
}

func (r *reader) why(ctx context.Context, argument string, images bool) (diagnosis.Diagnosis, error) {
	s, err := r.snapshot(ctx, true)
	if err != nil {
		return diagnosis.Diagnosis{}, err
	}
	found, err := r.find(ctx, &s, argument)
	if err != nil {
		return diagnosis.Diagnosis{}, err
	}
	if found.pod != nil {
		return r.whyPod(ctx, found.pod, s, images), nil
	}
	var happened []diagnosis.Event
	if i := found.instance; i != nil {
		happened = r.events(ctx, &s, "WindowsInstance", i.Namespace, i.Name)
	}
	if found.node != nil { // events of a node may be in several namespaces
		happened = append(happened, r.events(ctx, &s, "Node", metav1.NamespaceAll, found.node.Name)...)
	}
	explained := diagnosis.OfHost(found.instance, found.node, s, happened)
	if found.node != nil {
		r.addReport(ctx, &explained, found.node.Name)
	}
	return explained, nil
}

func (r *reader) whyPod(ctx context.Context, pod *corev1.Pod, s diagnosis.Snapshot,
	images bool) diagnosis.Diagnosis {
	var classes nodev1.RuntimeClassList
	s.Unread = unread(s.Unread, "RuntimeClasses", r.List(ctx, &classes))
	var ask lint.Images
	if images {
		ask = lint.AskRegistry
	}
	findings := lint.Check(ctx, []lint.Template{diagnosis.PodTemplate(pod)},
		lint.ClusterOf(s.Nodes, classes.Items), ask)
	happened := r.events(ctx, &s, "Pod", pod.Namespace, pod.Name)
	return diagnosis.OfPod(pod, classes.Items, findings, s, happened)
}

// find returns the objects that match an argument such as web or pod/web. A host and its node count as one subject.
func (r *reader) find(ctx context.Context, s *diagnosis.Snapshot, argument string) (subject, error) {
	kind, name, given := strings.Cut(argument, "/")
	if !given {
		kind, name = "", argument
	}
	if !slices.Contains([]string{"", kindHost, kindNode, kindPod}, kind) {
		return subject{}, fmt.Errorf("%s is none of host, node, pod", kind)
	}
	var found subject
	var err error
	if kind != kindPod {
		found, err = r.findHost(ctx, s, kind, name)
	}
	isHost := found.instance != nil || found.node != nil
	if (kind == "" || kind == kindPod) && err == nil {
		var forbidden error
		found.pod, forbidden = r.findPod(ctx, name)
		if !isHost { // a question about a host works without the right to read pods
			s.Unread = unread(s.Unread, "the pod", forbidden)
		}
	}
	switch {
	case err != nil:
		return subject{}, err
	case isHost && found.pod != nil:
		return subject{}, fmt.Errorf("%[1]s is a host or node, and a pod in namespace %[2]s: say host/%[1]s "+
			"or pod/%[1]s", name, found.pod.Namespace)
	case !isHost && found.pod == nil:
		return subject{}, notFound(s, argument, name)
	}
	return found, nil
}

func (r *reader) findHost(ctx context.Context, s *diagnosis.Snapshot, kind, name string) (subject, error) {
	var found subject
	var err error
	if found.instance, err = findInstance(s.Instances, name); err != nil {
		return found, err
	}
	nodeName := name
	if found.instance != nil {
		nodeName = found.instance.Status.NodeName
	}
	for i := range s.Nodes {
		if s.Nodes[i].Name == nodeName {
			found.node = &s.Nodes[i]
		}
	}
	if found.node != nil || nodeName == "" || kind == kindHost {
		return found, nil
	}
	node := &corev1.Node{} // the nodes couldn't be listed, or this node lacks the label for Windows
	switch err := r.Get(ctx, client.ObjectKey{Name: nodeName}, node); {
	case err == nil && node.Labels[corev1.LabelOSStable] == string(corev1.Linux):
		return found, fmt.Errorf("node %s is a Linux node", nodeName)
	case err == nil:
		found.node = node
	case !apierrors.IsNotFound(err) && kind == kindNode:
		s.Unread = unread(s.Unread, "node "+nodeName, err)
	}
	return found, nil
}

// findPod returns nil if the pod does not exist. If a host has this name, the caller can ignore the error.
func (r *reader) findPod(ctx context.Context, name string) (pod *corev1.Pod, unread error) {
	pod = &corev1.Pod{}
	if unread = r.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, pod); unread != nil {
		return nil, client.IgnoreNotFound(unread)
	}
	return pod, nil
}

// notFound explains why there is no object with the given name. For example, its entry may be rejected.
func notFound(s *diagnosis.Snapshot, argument, name string) error {
	for _, r := range s.Config.Status.RejectedEntries {
		if r.Key == name {
			return fmt.Errorf("entry %s of ConfigMap %s was rejected: %s %s", name, contract.InstancesConfigMap, r.Code,
				r.Message)
		}
	}
	return errors.New(strings.Join(append([]string{"no host, node or pod is named " + argument}, s.Unread...), "; "))
}

func (p *plugin) completeHosts(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	r, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	instances, err := r.instances(command.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, i := range instances {
		for _, name := range []string{i.Name, i.Status.NodeName} {
			if name != "" && !slices.Contains(given, name) {
				names = append(names, name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
