package kubectlwindows

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

const (
	// nodesAtOnce is the number of nodes whose logs are read at the same time. nodeTimeout is the time limit for the
	// logs of one node.
	nodesAtOnce = 8
	nodeTimeout = time.Minute
	// tailLines is how many lines of a container's log are requested: more than fits into --log-bytes.
	tailLines = 20_000

	// `partial` is the suffix of the archive's name until the archive is complete.
	partial = ".partial"
)

// Evidence writes the tar.gz archive of `kubectl windows bundle`, without secrets and with a limited size. The
// acceptance test adds its own findings. Evidence is safe for concurrent use.
type Evidence struct {
	reader   *reader
	options  bundleOptions
	redactor redactor
	progress io.Writer
	file     *os.File
	status   *diagnosis.Status

	mu       sync.Mutex
	gzip     *gzip.Writer
	tar      *tar.Writer
	left     int64
	files    []string
	problems []string
}

// NewEvidence creates the archive with permissions for its owner only. The file must not exist yet. `flags` select the
// API server, `operator` is the operator's namespace, and `file` is the path of the archive.
func NewEvidence(flags *genericclioptions.ConfigFlags, operator, file string, progress io.Writer) (*Evidence, error) {
	p := &plugin{IOStreams: genericiooptions.IOStreams{ErrOut: progress}, flags: flags, operator: operator,
		now: time.Now}
	r, err := p.connect()
	if err != nil {
		return nil, err
	}
	return p.evidence(r, bundleOptions{file: file, logBytes: defaultLogBytes, limit: defaultLimit,
		timeout: defaultTimeout})
}

func (p *plugin) evidence(r *reader, o bundleOptions) (*Evidence, error) {
	if _, err := os.Lstat(o.file); err == nil {
		return nil, fmt.Errorf("creating the archive: %s exists", o.file)
	}
	file, err := os.OpenFile(o.file+partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user's
	if err != nil {
		return nil, fmt.Errorf("creating the archive: %w", err)
	}
	compressed := gzip.NewWriter(file)
	return &Evidence{reader: r, options: o, redactor: newRedactor(r.credentials...), progress: p.ErrOut, file: file,
		gzip: compressed, tar: tar.NewWriter(compressed), left: o.limit}, nil
}

// Name returns the archive's path.
func (e *Evidence) Name() string { return e.options.file }

// Add adds a text to the archive, without its secrets. name may contain slashes. If the text doesn't fit, the index
// says so.
func (e *Evidence) Add(name string, text []byte) {
	text = e.redactor.text(text)
	e.mu.Lock()
	defer e.mu.Unlock()
	if int64(len(text)) > e.left {
		e.problems = append(e.problems, name+": the archive has its greatest size")
		return
	}
	e.left -= int64(len(text))
	e.files = append(e.files, name)
	if err := e.write(name, text); err != nil {
		e.problems = append(e.problems, err.Error())
	}
}

func (e *Evidence) write(name string, text []byte) error {
	header := &tar.Header{Name: path.Join("bundle", path.Clean("/"+name)), Mode: 0o600, Size: int64(len(text)),
		ModTime: e.reader.now()}
	err := e.tar.WriteHeader(header)
	if err == nil {
		_, err = e.tar.Write(text)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// lack notes that a part of the archive is missing because of err. If err is nil, it does nothing.
func (e *Evidence) lack(what string, err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problems = append(e.problems, what+": "+string(e.redactor.text([]byte(err.Error()))))
}

// Close writes the index, even if the archive has reached its size limit, and gives the archive its final name. The
// result is the number of missing parts.
func (e *Evidence) Close() (missing int, err error) {
	slices.Sort(e.files)
	var text strings.Builder
	page := diagnosis.Page{Now: e.reader.now(), Status: e.status, Missing: e.problems, Files: e.files,
		Clean: func(text string) string { return string(e.redactor.text([]byte(text))) }}
	err = page.Write(&text)
	if err == nil {
		err = e.write("index.html", []byte(text.String()))
	}
	if err = errors.Join(err, e.tar.Close(), e.gzip.Close(), e.file.Close()); err != nil {
		return 0, fmt.Errorf("writing %s: %w", e.file.Name(), err)
	}
	if err = os.Rename(e.file.Name(), e.options.file); err != nil {
		return 0, fmt.Errorf("renaming the archive: %w", err)
	}
	return len(e.problems), nil
}

// Collect adds the objects, logs and reports of a bundle to the archive. Call it at most once.
func (e *Evidence) Collect(ctx context.Context) {
	snapshot, err := e.reader.snapshot(ctx, true)
	e.lack("summary", err)
	e.fill(ctx, snapshot)
}

func (e *Evidence) fill(ctx context.Context, snapshot diagnosis.Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, e.options.timeout)
	defer cancel()
	e.summary(snapshot)
	e.objects(ctx)
	e.operatorLogs(ctx)
	e.nodeLogs(ctx, snapshot.Nodes)
	for _, problem := range snapshot.Unread {
		e.lack("summary", errors.New(problem))
	}
	e.lack("collecting ended early", ctx.Err())
}

func (e *Evidence) summary(s diagnosis.Snapshot) {
	style := diagnosis.Style{Now: s.Now, Wide: true}
	status := diagnosis.Summarize(s)
	var text bytes.Buffer
	e.lack("status", status.Print(&text, style))
	e.status = &status
	e.Add("status.txt", text.Bytes())
	nodes := map[string]*corev1.Node{}
	for i := range s.Nodes {
		nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for i := range s.Instances {
		d := diagnosis.OfHost(&s.Instances[i], nodes[s.Instances[i].Status.NodeName], s, nil)
		var why bytes.Buffer
		e.lack("why", d.Print(&why, style))
		e.Add("hosts/"+s.Instances[i].Name+".txt", why.Bytes())
	}
}

func (e *Evidence) objects(ctx context.Context) {
	inOperator := client.InNamespace(e.reader.operator)
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
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(one.kind.GroupVersion().WithKind(one.kind.Kind + "List"))
		if err := e.reader.List(ctx, list, append(one.options, client.Limit(maxListed))...); err != nil {
			e.lack(one.name, err)
			continue
		}
		if list.GetContinue() != "" {
			e.lack(one.name, fmt.Errorf("there are more than %d", len(list.Items)))
		}
		kept := &unstructured.UnstructuredList{}
		kept.SetGroupVersionKind(list.GroupVersionKind())
		for _, object := range list.Items {
			if object.SetGroupVersionKind(one.kind); !foreign(&object) {
				e.redactor.clean(&object)
				kept.Items = append(kept.Items, object)
			}
		}
		text, err := toYAML(kept.UnstructuredContent())
		e.lack(one.name, err)
		e.Add("objects/"+one.name+".yaml", []byte(text))
	}
}

func foreign(object *unstructured.Unstructured) bool {
	name := object.GetName()
	return object.GetKind() == "ConfigMap" && !strings.HasPrefix(name, contract.ServicesConfigMapPrefix) &&
		!slices.Contains([]string{contract.InstancesConfigMap, contract.ReleasedConfigMap,
			contract.PayloadSourceConfigMap, contract.ReplacementsConfigMap, contract.SlotsConfigMap}, name)
}

func operatorLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": contract.OperatorServiceAccount}
}

// operatorLogs adds the ends of the logs of the operator's containers. If a container was restarted, it also adds the
// log of the previous run.
func (e *Evidence) operatorLogs(ctx context.Context) {
	pods, err := e.reader.clients.CoreV1().Pods(e.reader.operator).List(ctx, metav1.ListOptions{Limit: chunk,
		LabelSelector: labels.FormatLabels(operatorLabels())})
	if err != nil {
		e.lack("operator's logs", err)
		return
	}
	for _, pod := range pods.Items {
		for _, container := range pod.Status.ContainerStatuses {
			name := "operator/" + pod.Name + "-" + container.Name
			e.podLog(ctx, name+".log", pod.Name, container.Name, false)
			if container.RestartCount > 0 {
				e.podLog(ctx, name+"-previous.log", pod.Name, container.Name, true)
			}
		}
	}
}

// wholeLines removes the first line of a text if the size limit may have cut it. Otherwise, the redactor might not
// recognize the rest of a secret.
func (e *Evidence) wholeLines(text []byte) []byte {
	if int64(len(text)) < e.options.logBytes {
		return text
	}
	_, text, _ = bytes.Cut(text, []byte("\n"))
	return text
}

func (e *Evidence) podLog(ctx context.Context, file, pod, container string, previous bool) {
	options := &corev1.PodLogOptions{Container: container, Previous: previous, TailLines: new(int64(tailLines))}
	text, err := e.reader.clients.CoreV1().Pods(e.reader.operator).GetLogs(pod, options).DoRaw(ctx)
	if e.lack(file, err); err == nil {
		e.Add(file, e.wholeLines(text[max(0, int64(len(text))-e.options.logBytes):]))
	}
}

// nodeLogs adds the logs of nodes. If a node doesn't answer, only its logs are missing.
func (e *Evidence) nodeLogs(ctx context.Context, nodes []corev1.Node) {
	var names []string
	for i := range nodes {
		if name := nodes[i].Name; len(e.options.nodes) == 0 || slices.Contains(e.options.nodes, name) {
			names = append(names, name)
		}
	}
	for _, name := range e.options.nodes {
		if !slices.Contains(names, name) {
			e.lack("node "+name, errors.New("there is no Windows node of this name"))
		}
	}
	var group errgroup.Group
	group.SetLimit(nodesAtOnce)
	done := 0
	for _, name := range names {
		group.Go(func() error {
			count, err := e.nodeLog(ctx, name)
			e.lack("node "+name, err)
			line := fmt.Sprintf("%d logs", count)
			if err != nil {
				line += ", then " + oneLine(string(e.redactor.text([]byte(err.Error()))))
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			done++
			_, _ = fmt.Fprintf(e.progress, "%d/%d %s: %s\n", done, len(names), name, line)
			return nil
		})
	}
	_ = group.Wait()
}

// nodeLog adds the report and the logs of one node, and returns the number of logs. A node may lack the log of a
// service because it doesn't run the service. After any other failure, nodeLog stops, because the other logs would fail
// in the same way.
func (e *Evidence) nodeLog(ctx context.Context, node string) (count int, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	report, err := e.reader.reportText(ctx, node)
	switch {
	case err == nil:
		e.Add("nodes/"+node+"/report.json", report)
	case !apierrors.IsNotFound(err): // daemons of older releases write no report
		return 0, err
	}
	for _, service := range services() {
		got, err := e.reader.end(ctx, node, logFile(service), e.options.logBytes)
		if apierrors.IsNotFound(err) {
			continue
		}
		if len(got.text) > 0 || err == nil {
			count++
			e.Add("nodes/"+node+"/"+service+".log", e.wholeLines(got.text))
		}
		if err != nil {
			return count, err
		}
	}
	return count, nil
}
