package kubectlwindows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/drain"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/policy"
)

func (p *plugin) rebootCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "reboot NODE...",
		Short: "Drain hosts and reboot them, within the rollout budget",
		Long: `Request one reboot of each node. When the rollout budget and the maintenance windows allow it, the
operator drains and reboots the node. It returns the node to service when the node is Ready again.`,
		Example: `  kubectl windows reboot win-7
  kubectl windows status --watch`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: p.completeHosts,
	}
	return p.edits(command, true, func(ctx context.Context, e *editor, args []string) error {
		if err := e.confirm("These nodes will be drained and rebooted", args); err != nil {
			return err
		}
		return each(args, func(name string) error { return e.reboot(ctx, name) })
	})
}

func (e *editor) reboot(ctx context.Context, name string) error {
	found, err := e.nodeOf(ctx, name)
	if err != nil {
		return err
	}
	node := found.node
	if node.Annotations[contract.InstanceAnnotation] == "" {
		return fmt.Errorf("node %s does not belong to the operator", node.Name)
	}
	now := e.now().UTC().Format(time.RFC3339)
	if err = e.merge(ctx, node, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{contract.RebootRequestedAnnotation: now}}}, "node "+node.Name); err != nil {
		return err
	}
	return e.done("reboot of %s requested", node.Name)
}

// nodeOf finds a Node and its WindowsInstance by the name of the Node, or by the name or address of the host. The
// WindowsInstance is nil if it can't be found.
func (r *reader) nodeOf(ctx context.Context, name string) (subject, error) {
	instances, unlisted := r.instances(ctx)
	s := diagnosis.Snapshot{Instances: instances}
	found, err := r.findHost(ctx, &s, kindNode, name)
	if err == nil && found.node == nil {
		err = cmp.Or(unlisted, errors.New(strings.Join(append(s.Unread, "no node is named "+name+
			", and no host of that name has one"), "; ")))
	}
	return found, err
}

func (p *plugin) drainCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "drain-status NODE",
		Short: "Show which pods a drain of a node waits for, and what holds them",
		Long: `Show which pods must leave a node before it is drained, which of them are ending, and which
PodDisruptionBudgets hold the others. Pods of DaemonSets stay. It also works for a node that is not being
drained. The exit code is 2 when a budget holds a pod.`,
		Example: `  kubectl windows drain-status win-7`,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: p.completeHosts,
		RunE: func(command *cobra.Command, args []string) error {
			r, err := p.connect()
			if err != nil {
				return err
			}
			found, err := r.drainStatus(command.Context(), args[0])
			if err != nil {
				return err
			}
			return p.show(&found, nil)
		},
	}
	p.outputFlag(command, "json", "yaml")
	return command
}

// withoutEnded skips pods that have ended, because a drain doesn't wait for them.
func withoutEnded(pod corev1.Pod) drain.PodDeleteStatus {
	if policy.HasEnded(&pod) {
		return drain.MakePodDeleteStatusSkip()
	}
	return drain.MakePodDeleteStatusOkay()
}

func (r *reader) drainStatus(ctx context.Context, name string) (diagnosis.Drain, error) {
	found, err := r.nodeOf(ctx, name)
	if err != nil {
		return diagnosis.Drain{}, err
	}
	node := found.node
	helper := drain.Helper{Ctx: ctx, Client: r.clients, Force: true, IgnoreAllDaemonSets: true,
		DeleteEmptyDirData: true, ChunkSize: chunk, AdditionalFilters: []drain.PodFilter{withoutEnded}}
	pods, failed := helper.GetPodsForDeletion(node.Name)
	if err = errors.Join(failed...); err != nil {
		return diagnosis.Drain{}, fmt.Errorf("listing pods of node %s: %w", node.Name, err)
	}
	var budgets []policyv1.PodDisruptionBudget
	read := map[string]bool{}
	for _, pod := range pods.Pods() {
		if read[pod.Namespace] {
			continue
		}
		read[pod.Namespace] = true
		list, err := r.clients.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return diagnosis.Drain{}, fmt.Errorf("listing PodDisruptionBudgets in namespace %s: %w", pod.Namespace, err)
		}
		budgets = append(budgets, list.Items...)
	}
	return diagnosis.DrainOf(node, cmp.Or(found.instance, &v1alpha1.WindowsInstance{}), pods.Pods(), budgets), nil
}
