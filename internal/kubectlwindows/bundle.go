package kubectlwindows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

const (
	// nodesAtOnce bounds how many nodes are read from at the same time, nodeTimeout how long one takes.
	nodesAtOnce = 8
	nodeTimeout = time.Minute
	// maxListed bounds each list of objects, which is read in chunks.
	maxListed = 5000
	// tailLines is how many lines are read of a container's log: more than --log-bytes have.
	tailLines = 20_000

	defaultLogBytes = 1 << 20
	defaultLimit    = 512 << 20
	defaultTimeout  = 10 * time.Minute
)

// bundleOptions bound a bundle.
type bundleOptions struct {
	file            string
	nodes           []string
	logBytes, limit int64
	timeout         time.Duration
}

func (p *plugin) bundleCommand() *cobra.Command {
	var o bundleOptions
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what support needs into one archive, without secrets",
		Long: `Collect objects, events, the operator's logs, and the logs of nodes and the reports of their daemons
into one archive, with a page index.html to begin with. What is of nodes comes through kubelet; a node
that does not answer costs its own part only.

Secrets are not read. Values of variables and of annotations that are not well known, private keys,
tokens, and passwords in URLs and after names that say so are replaced by [redacted]; names and
addresses of hosts stay. Look through the archive before you give it away.

Ctrl-C ends collecting; the archive has what was collected by then. Until it is whole its name ends in
.partial.`,
		Example: `  kubectl windows bundle
  kubectl windows bundle --nodes win-7,win-8 --file case-42.tar.gz`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			if o.file == "" {
				o.file = "windows-bundle-" + p.now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			return p.bundle(command.Context(), o)
		},
	}
	command.Flags().StringVar(&o.file, "file", "", "archive to make; by default it has the time in its name")
	command.Flags().StringSliceVar(&o.nodes, "nodes", nil, "nodes whose logs are collected; all by default")
	command.Flags().Int64Var(&o.logBytes, "log-bytes", defaultLogBytes, "how much of the end of each log is collected")
	command.Flags().Int64Var(&o.limit, "max-bytes", defaultLimit,
		"how much is collected altogether, before compression")
	command.Flags().DurationVar(&o.timeout, "timeout", defaultTimeout, "how long it may take")
	return command
}

// bundle makes the archive. What can't be read is named in its index.
func (p *plugin) bundle(ctx context.Context, o bundleOptions) error {
	if o.logBytes <= 0 || o.logBytes > maxLog {
		return fmt.Errorf("--log-bytes is %d and must be from 1 to %d", o.logBytes, maxLog)
	}
	r, err := p.connect()
	if err != nil {
		return err
	}
	snapshot, err := r.snapshot(ctx, true)
	if err != nil {
		return err
	}
	e, err := p.evidence(r, o)
	if err != nil {
		return err
	}
	e.fill(ctx, snapshot)
	missing, err := e.Close()
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintln(p.Out, o.file); err != nil {
		return err
	}
	if missing > 0 {
		_, _ = fmt.Fprintf(p.ErrOut, "%d parts are missing: index.html says which, and why\n", missing)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted: " + o.file + " has what was collected before")
	}
	return nil
}

// collector fills one archive.
type collector struct {
	*reader
	bundleOptions
	*archive
	snapshot diagnosis.Snapshot
	// progress is told what there is of each node.
	progress io.Writer
}

// addFile adds a file; one that does not fit is noted by the archive.
func (c *collector) addFile(name string, text []byte) {
	if err := c.archive.add(name, text); err != nil && !errors.Is(err, errFull) {
		c.lack(name, err)
	}
}

// summary writes the status, and why of each host, and returns the status for the index.
func (c *collector) summary() string {
	style := diagnosis.Style{Now: c.snapshot.Now, Wide: true}
	status := diagnosis.Summarize(c.snapshot)
	var text bytes.Buffer
	c.lack("status", status.Print(&text, style))
	c.addFile("status.txt", text.Bytes())
	nodes := map[string]*corev1.Node{}
	for i := range c.snapshot.Nodes {
		nodes[c.snapshot.Nodes[i].Name] = &c.snapshot.Nodes[i]
	}
	for i := range c.snapshot.Instances {
		instance := &c.snapshot.Instances[i]
		d := diagnosis.OfHost(instance, nodes[instance.Status.NodeName], c.snapshot, nil)
		var why bytes.Buffer
		c.lack("why", d.Print(&why, style))
		c.addFile("hosts/"+instance.Name+".txt", why.Bytes())
	}
	return text.String()
}

// objects writes objects and events. Of Secrets there are none.
func (c *collector) objects(ctx context.Context) {
	inOperator := client.InNamespace(c.operator)
	core := schema.GroupVersion{Version: "v1"}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	for _, one := range []struct {
		name    string
		kind    schema.GroupVersionKind
		options []client.ListOption
	}{
		{"windowsinstances", v1alpha1.GroupVersion().WithKind("WindowsInstance"), []client.ListOption{inOperator}},
		{"windowsmachineconfigs", v1alpha1.GroupVersion().WithKind("WindowsMachineConfig"), nil},
		{"nodes", core.WithKind("Node"), []client.ListOption{client.MatchingLabels{
			corev1.LabelOSStable: string(corev1.Windows)}}},
		{"configmaps", core.WithKind("ConfigMap"), []client.ListOption{inOperator}},
		{"pods", core.WithKind("Pod"), []client.ListOption{inOperator, client.MatchingLabels(operatorLabels())}},
		{"deployments", apps.WithKind("Deployment"), []client.ListOption{inOperator,
			client.MatchingLabels(operatorLabels())}},
		{"events", core.WithKind("Event"), []client.ListOption{inOperator}},
		{"events-of-nodes", core.WithKind("Event"), []client.ListOption{client.MatchingFieldsSelector{
			Selector: fields.OneTermEqualSelector("involvedObject.kind", "Node")}}},
		{"runtimeclasses", schema.GroupVersionKind{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"}, nil},
	} {
		list, err := c.list(ctx, one.kind, one.options)
		c.lack(one.name, err)
		if err != nil && len(list.Items) == 0 {
			continue
		}
		text, err := toYAML(list.UnstructuredContent())
		c.lack(one.name, err)
		c.addFile("objects/"+one.name+".yaml", text)
	}
}

// list reads objects in chunks, clean. What came before an error is returned with it.
func (c *collector) list(ctx context.Context, kind schema.GroupVersionKind, options []client.ListOption) (
	*unstructured.UnstructuredList, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for next := ""; ; {
		part := &unstructured.UnstructuredList{}
		part.SetGroupVersionKind(all.GroupVersionKind())
		if err := c.List(ctx, part, append(options, client.Limit(chunk), client.Continue(next))...); err != nil {
			return all, err
		}
		for _, object := range part.Items {
			if object.SetGroupVersionKind(kind); !foreign(&object) {
				c.redactor.clean(&object)
				all.Items = append(all.Items, object)
			}
		}
		switch next = part.GetContinue(); {
		case next == "":
			return all, nil
		case len(all.Items) >= maxListed:
			return all, fmt.Errorf("there are more than %d", len(all.Items))
		}
	}
}

// foreign is a ConfigMap that is not the operator's.
func foreign(object *unstructured.Unstructured) bool {
	name := object.GetName()
	return object.GetKind() == "ConfigMap" && !strings.HasPrefix(name, contract.ServicesConfigMapPrefix) &&
		!slices.Contains([]string{contract.InstancesConfigMap, contract.ReleasedConfigMap,
			contract.PayloadSourceConfigMap, contract.ReplacementsConfigMap, contract.PlacesConfigMap}, name)
}

// operatorLabels are those of the operator's pods and of its Deployment.
func operatorLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": contract.OperatorServiceAccount}
}

// operatorLogs writes the end of what the operator's containers log, also of those that ended.
func (c *collector) operatorLogs(ctx context.Context) {
	pods, err := c.clients.CoreV1().Pods(c.operator).List(ctx, metav1.ListOptions{Limit: chunk,
		LabelSelector: labels.FormatLabels(operatorLabels())})
	if err != nil {
		c.lack("operator's logs", err)
		return
	}
	for _, pod := range pods.Items {
		for _, container := range pod.Status.ContainerStatuses {
			name := "operator/" + pod.Name + "-" + container.Name
			c.podLog(ctx, name+".log", pod.Name, container.Name, false)
			if container.RestartCount > 0 {
				c.podLog(ctx, name+"-previous.log", pod.Name, container.Name, true)
			}
		}
	}
}

// wholeLines cuts a first line that the bound may have cut: of a secret in it not enough would be left
// to see what it is.
func (c *collector) wholeLines(text []byte) []byte {
	if int64(len(text)) < c.logBytes {
		return text
	}
	_, text, _ = bytes.Cut(text, []byte("\n"))
	return text
}

func (c *collector) podLog(ctx context.Context, file, pod, container string, previous bool) {
	text, err := end(ctx, c.clients.CoreV1().Pods(c.operator).GetLogs(pod, &corev1.PodLogOptions{Container: container,
		Previous: previous, TailLines: new(int64(tailLines))}), c.logBytes)
	c.lack(file, err)
	if err == nil || len(text) > 0 {
		c.addFile(file, c.wholeLines(text))
	}
}

// nodeLogs writes the logs of nodes, several at once.
func (c *collector) nodeLogs(ctx context.Context) {
	var names []string
	for i := range c.snapshot.Nodes {
		if name := c.snapshot.Nodes[i].Name; len(c.nodes) == 0 || slices.Contains(c.nodes, name) {
			names = append(names, name)
		}
	}
	for _, name := range c.nodes {
		if !slices.Contains(names, name) {
			c.lack("node "+name, errors.New("there is no Windows node of this name"))
		}
	}
	var group errgroup.Group
	group.SetLimit(nodesAtOnce)
	var telling sync.Mutex
	done := 0
	for _, name := range names {
		group.Go(func() error {
			told := c.nodePart(ctx, name)
			telling.Lock()
			defer telling.Unlock()
			done++
			_, _ = fmt.Fprintf(c.progress, "%d/%d %s: %s\n", done, len(names), name, told)
			return nil // a node costs its own part only
		})
	}
	_ = group.Wait()
}

// nodePart writes what there is of one node, and says what that is.
func (c *collector) nodePart(ctx context.Context, node string) string {
	count, err := c.nodeLog(ctx, node)
	c.lack("node "+node, err)
	if err != nil {
		return fmt.Sprintf("%d logs, then %s", count, strings.ReplaceAll(string(c.redactor.text([]byte(err.Error()))),
			"\n", " "))
	}
	return fmt.Sprintf("%d logs", count)
}

// nodeLog writes the logs of one node. A service that a node does not have has none; whatever else fails
// ends it, since the other logs would wait for the same.
func (c *collector) nodeLog(ctx context.Context, node string) (count int, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	report, err := c.reportText(ctx, node)
	switch {
	case err == nil:
		c.addFile("nodes/"+node+"/report.json", report)
	case !apierrors.IsNotFound(err): // an older daemon writes none
		return 0, err
	}
	for _, service := range services() {
		text, err := c.log(ctx, node, logFile(service), c.logBytes)
		if apierrors.IsNotFound(err) {
			continue
		}
		if len(text) > 0 || err == nil {
			count++
			c.addFile("nodes/"+node+"/"+service+".log", c.wholeLines(text))
		}
		if err != nil {
			return count, err
		}
	}
	return count, nil
}
