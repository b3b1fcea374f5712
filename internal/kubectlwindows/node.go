package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/policy"
)

// maxLog is the maximum size that is read of a log.
const maxLog = 64 << 20

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

// reboot writes the annotation that requests a reboot.
func (e *editor) reboot(ctx context.Context, name string) error {
	node, err := e.nodeOf(ctx, name)
	if err != nil {
		return err
	}
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

// nodeOf finds a Node by its own name, or by its host.
func (r *reader) nodeOf(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := r.Get(ctx, client.ObjectKey{Name: name}, node)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	if err != nil {
		instances, err := r.instances(ctx)
		if err != nil {
			return nil, err
		}
		instance, err := findInstance(instances, name)
		if err != nil {
			return nil, err
		}
		if instance == nil || instance.Status.NodeName == "" {
			return nil, fmt.Errorf("no node is named %s, and no host of that name has one", name)
		}
		if err = r.Get(ctx, client.ObjectKey{Name: instance.Status.NodeName}, node); err != nil {
			return nil, fmt.Errorf("reading node %s: %w", instance.Status.NodeName, err)
		}
	}
	if node.Labels[corev1.LabelOSStable] == string(corev1.Linux) {
		return nil, fmt.Errorf("node %s is a Linux node", node.Name)
	}
	return node, nil
}

func (p *plugin) logsCommand() *cobra.Command {
	service, file := "", ""
	var tail int64
	command := &cobra.Command{
		Use:   "logs NODE",
		Short: "Show the log of the daemon or of a service on a node",
		Long: `Show the end of a log on a node: the log of the daemon, or of the service in --service. The log comes
from kubelet through the API server, so kubelet must run. You need the right get on nodes/proxy, but no
login on the host.`,
		Example: `  kubectl windows logs win-7
  kubectl windows logs win-7 --service kubelet --tail-bytes 1000000

  # List the logs
  kubectl windows logs win-7 --path /`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeHosts,
		RunE: func(command *cobra.Command, args []string) error {
			r, err := p.connect()
			if err != nil {
				return err
			}
			node, err := r.nodeOf(command.Context(), args[0])
			if err != nil {
				return err
			}
			if file == "" {
				file = logFile(service)
			}
			text, err := r.log(command.Context(), node.Name, file, tail)
			if printers.IsTerminal(p.Out) { // a terminal would execute the host's control characters
				text = []byte(diagnosis.Visible(string(text)))
			}
			_, failed := p.Out.Write(text)
			return errors.Join(err, failed)
		},
	}
	command.Flags().StringVar(&service, "service", "", "name of the service; the daemon by default")
	command.Flags().StringVar(&file, "path", "", `path of a file below C:\var\log, or / for a list`)
	command.Flags().Int64Var(&tail, "tail-bytes", 64<<10, "how many bytes to show from the end, at most 64 MiB")
	_ = command.RegisterFlagCompletionFunc("service",
		cobra.FixedCompletions(services(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

// daemonName is the short name of the daemon's service for users.
const daemonName = "wicd"

// services lists the services with logs below C:\var\log, the daemon first.
func services() []string { return append([]string{daemonName}, contract.LoggingServices()[1:]...) }

// logFile returns the path of a service's log, below C:\var\log.
func logFile(service string) string {
	if slices.Contains([]string{"", daemonName, "daemon"}, service) {
		service = contract.ServiceDaemon
	}
	return below(contract.LogFile(service))
}

// log reads the end of a file below C:\var\log of a node. kubelet serves the files as a web server does, so log
// requests a range.
func (r *reader) log(ctx context.Context, node, file string, tail int64) ([]byte, error) {
	if tail <= 0 || tail > maxLog {
		return nil, fmt.Errorf("--tail-bytes is %d and must be from 1 to %d", tail, maxLog)
	}
	file = path.Clean("/" + strings.ReplaceAll(file, `\`, "/"))
	request := r.clients.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + node + "/proxy/logs" + file)
	if file != "/" {
		request = request.SetHeader("Range", fmt.Sprintf("bytes=-%d", tail))
	}
	text, err := end(ctx, request, tail)
	if err != nil {
		err = fmt.Errorf("reading log %s of node %s: %w", file, node, err)
	}
	return text, err
}

// end returns the end of a response, which may be longer than requested. After an error, it returns the content so
// far together with the error.
func end(ctx context.Context, request *rest.Request, most int64) ([]byte, error) {
	answer, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer, maxLog))
	return text[max(0, len(text)-int(most)):], err
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

// withoutEnded skips pods that no drain waits for.
func withoutEnded(pod corev1.Pod) drain.PodDeleteStatus {
	if policy.HasEnded(&pod) {
		return drain.MakePodDeleteStatusSkip()
	}
	return drain.MakePodDeleteStatusOkay()
}

func (r *reader) drainStatus(ctx context.Context, name string) (diagnosis.Drain, error) {
	node, err := r.nodeOf(ctx, name)
	if err != nil {
		return diagnosis.Drain{}, err
	}
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
	instances, err := r.instances(ctx)
	if err != nil {
		instances = nil // instances aren't required to find blocked pods
	}
	instance, err := findInstance(instances, node.Name)
	if err != nil || instance == nil {
		instance = &v1alpha1.WindowsInstance{}
	}
	return diagnosis.DrainOf(node, instance, pods.Pods(), budgets), nil
}
