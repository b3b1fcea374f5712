package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/docs"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/test/acceptance"
)

// runRows is the file that the command "run" writes its rows to.
const runRows = "run-rows.json"

// The steps of a run, in order.
const (
	stepPlane   = "control plane and operator start"
	stepHost    = "the host can be reached"
	stepList    = "the acceptance list runs to its end"
	stepJoin    = "the host joins"
	stepPod     = "a pod answers over HTTP"
	stepUpgrade = "the node follows to the next build"
	stepLeave   = "the host leaves without a reboot"
	stepCompare = "the host is as it was before"
)

// visit is one run.
type visit struct {
	options
	*table
	scene *scene.Scene
	host  host
	// address and settings are the host's entry in windows-instances.
	address, settings string
	before            sim.Snapshot
	boot              string
}

// run makes the host a node, tries all steps, and removes the node.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	v := &visit{options: o, table: &table{path: filepath.Join(o.results, runRows), out: out}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := v.try(stepPlane, func() error { return v.start(ctx) })
	if v.scene != nil {
		defer func() { err = errors.Join(err, v.close()) }() //nolint:contextcheck // close runs after ctx has ended
	}
	if !started {
		v.skip("there is no control plane", stepHost, stepList, stepJoin, stepPod, stepUpgrade, stepLeave, stepCompare)
		return v.err()
	}
	if !v.try(stepHost, func() error { return v.reach(ctx) }) {
		v.skip("the host can't be reached", stepList, stepJoin, stepPod, stepUpgrade, stepLeave, stepCompare)
		return v.err()
	}
	v.try(stepList, func() error { return v.list(ctx) })
	if v.try(stepJoin, func() error { return v.join(ctx) }) {
		v.try(stepPod, func() error { return v.pod(ctx) })
		v.try(stepUpgrade, func() error { return v.upgrade(ctx) })
	} else {
		v.skip("the host did not join", stepPod, stepUpgrade)
	}
	v.try(stepLeave, func() error { return v.leave(ctx) })
	v.try(stepCompare, func() error { return v.compare(ctx) })
	return v.err()
}

// start starts a control plane like kubeadm's on this machine, and the operator as a process. The network type is
// External: see cniConfig.
func (v *visit) start(ctx context.Context) (err error) {
	o := scene.Options{Operator: v.operator, Payload: v.payload, Complete: v.simulated, Kubernetes: true,
		Progress: v.out,
		Settings: &v1alpha1.WindowsMachineConfigSpec{Network: v1alpha1.NetworkSpec{Type: v1alpha1.NetworkExternal}}}
	if v.simulated {
		o.Hosts = fleet.Options{Count: 1}
	}
	if v.scene, err = scene.Start(ctx, o); err != nil {
		return err
	}
	if v.simulated {
		v.host = simulated{v.scene.Fleet.Hosts[0]}
		return nil
	}
	v.host, err = thisMachine(ctx)
	return err
}

// close stops everything, and keeps the operator's log. It doesn't keep the rest of the directory, because the rest
// contains keys.
func (v *visit) close() error {
	if v.scene.Operator != nil {
		log, err := os.ReadFile(v.scene.Operator.Log)
		if err == nil {
			err = os.WriteFile(filepath.Join(v.results, "operator.log"), log, 0o600)
		}
		if err != nil {
			fmt.Fprintln(v.out, "keeping the operator's log:", err)
		}
	}
	return v.scene.Close()
}

// reach lets the operator log in, and takes a snapshot of the host.
func (v *visit) reach(ctx context.Context) (err error) {
	if v.address, v.settings, err = v.host.authorize(ctx, v.scene.Key.Public); err != nil {
		return err
	}
	facts, err := v.host.windows().System.Facts(ctx)
	if err != nil {
		return err
	}
	v.boot = facts.BootID
	fmt.Fprintf(v.out, "%s %d.%d, %s\n", facts.ProductName, facts.Build, facts.UBR, v.address)
	if v.before, err = v.host.look(ctx); err != nil {
		return err
	}
	if !v.simulated { // the lab configures the network of simulated hosts itself
		err = bringNetwork(v.host.windows().Files)
	}
	return errors.Join(err, v.keepSnapshot("before.json", v.before))
}

// keepSnapshot writes a snapshot.
func (v *visit) keepSnapshot(name string, s sim.Snapshot) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return keep(v.results, name, text)
}

// question matches a line of docs/first-run.md.
var question = regexp.MustCompile(`<a id="(H\d\d)">`)

// rowsToTry returns all rows except A30. A30 reboots the host, which would end the runner's job.
func rowsToTry() ([]string, error) {
	rows, err := acceptance.Rows()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, r := range rows {
		if r.Number != "A30" {
			all = append(all, r.Number)
		}
	}
	for _, match := range question.FindAllStringSubmatch(docs.FirstRun, -1) {
		all = append(all, match[1])
	}
	return all, nil
}

// list runs the acceptance list with the host, as wmco-e2e does: the host joins, is checked, leaves, joins again and
// leaves. wmco-e2e writes the evidence to an archive, first-hour-….tar.gz.
func (v *visit) list(ctx context.Context) (err error) {
	only := v.only
	if len(only) == 0 {
		if only, err = rowsToTry(); err != nil {
			return err
		}
	}
	limit := v.patience.String()
	args := []string{"wmco-e2e", "--kubeconfig", v.scene.Cluster.Kubeconfig, "--host", v.address + "=" + v.settings,
		"--first-hour", "--disrupt=entries,rollout,settings", "--results", v.results, "--rows", strings.Join(only, ","),
		"--join-timeout", limit, "--leave-timeout", limit, "--pace", v.pace.String()}
	lacks := map[acceptance.Need]string{
		acceptance.NeedScheduler: "the control plane has no scheduler",
		acceptance.NeedStorage:   "no driver is installed", acceptance.NeedLoadBalancer: "there is none",
		acceptance.NeedMetrics: "there is no metrics API"}
	if why := v.host.noContainers(); why != "" {
		lacks[acceptance.NeedContainers] = why
	}
	for need, why := range lacks {
		args = append(args, "--lacks", string(need)+"="+why)
	}
	code := acceptance.Main(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: v.out, ErrOut: v.out})
	if err = v.addJUnit(filepath.Join(v.results, "junit.xml")); err != nil {
		return err
	}
	const rowsFailed = 2 // each failure is in its own row
	if code != 0 && code != rowsFailed {
		return fmt.Errorf("wmco-e2e ended with the exit code %d", code)
	}
	return nil
}

func (v *visit) join(ctx context.Context) error {
	if err := v.scene.ListRaw(ctx, map[string]string{v.address: v.settings}); err != nil {
		return err
	}
	return v.scene.WaitInstances(ctx, v.patience, v.address)
}

// node returns the host's Node.
func (v *visit) node(ctx context.Context) (*corev1.Node, error) {
	instance, err := v.scene.InstanceNamed(ctx, v.address)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	return node, v.scene.Client.Get(ctx, client.ObjectKey{Name: instance.Status.NodeName}, node)
}

// podPort is the port of the pod's web server.
const podPort = "18080"

// pod starts agnhost, in an image based on nanoserver, as a HostProcess container, because such a container needs no
// pod network.
func (v *visit) pod(ctx context.Context) error {
	if why := v.host.noContainers(); why != "" {
		return cannot("%s", why)
	}
	node, err := v.node(ctx)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "realwindows"},
		Spec: corev1.PodSpec{
			NodeName: node.Name, HostNetwork: true, AutomountServiceAccountToken: new(false),
			OS:          &corev1.PodOS{Name: corev1.Windows},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{
				HostProcess: new(true), RunAsUserName: new(`NT AUTHORITY\SYSTEM`)}},
			Containers: []corev1.Container{{Name: "web", Image: acceptance.DefaultImage,
				Command: []string{`%CONTAINER_SANDBOX_MOUNT_POINT%\agnhost.exe`},
				Args:    []string{"netexec", "--http-port=" + podPort}}},
		}}
	if err = v.scene.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating the pod: %w", err)
	}
	defer func() { _ = v.scene.Client.Delete(ctx, pod) }() // it is also deleted with the node
	return v.scene.Await(ctx, v.patience, "an answer of the pod", func(ctx context.Context) (bool, string, error) {
		if err := v.scene.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, "", err
		}
		now := string(pod.Status.Phase) + " " + pod.Status.Message
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil {
				now += " " + c.State.Waiting.Reason + " " + c.State.Waiting.Message
			}
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+v.address+":"+podPort+"/hostname", nil)
		if err != nil {
			return false, now, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, now + " " + err.Error(), nil //nolint:nilerr // the pod doesn't answer yet
		}
		return response.StatusCode == http.StatusOK, now, response.Body.Close()
	})
}

// versionAnnotation is the node's annotation with its version.
const versionAnnotation = "windowsmachineconfig.openshift.io/version"

// upgrade starts the next build of the operator, and waits until the node has its version.
func (v *visit) upgrade(ctx context.Context) error {
	if v.next == "" {
		return cannot("no next build was given: --next")
	}
	node, err := v.node(ctx)
	if err != nil {
		return err
	}
	old := node.Annotations[versionAnnotation]
	if err = v.scene.Upgrade(ctx, v.next, ""); err != nil {
		return err
	}
	what := "the node to have the next version"
	return v.scene.Await(ctx, v.patience, what, func(ctx context.Context) (bool, string, error) {
		behind, err := v.scene.Unsettled(ctx, 1)
		if err != nil {
			return false, "", err
		}
		if node, err = v.node(ctx); err != nil {
			return false, "", err
		}
		now := node.Annotations[versionAnnotation]
		return now != "" && now != old && len(behind) == 0, now + " " + strings.Join(behind, "; "), nil
	})
}

// leave removes the host from the list, and waits until its instance and Node are deleted. It fails if the host was
// rebooted.
func (v *visit) leave(ctx context.Context) error {
	if err := v.scene.ListRaw(ctx, nil); err != nil {
		return err
	}
	err := v.scene.Await(ctx, v.patience, "the host to leave", func(ctx context.Context) (bool, string, error) {
		instance, err := v.scene.InstanceNamed(ctx, v.address)
		if err == nil {
			s := instance.Status
			return false, fmt.Sprintf("%s %s %s", s.Phase, s.Reason(), s.Message()), nil
		}
		if !apierrors.IsNotFound(errors.Unwrap(err)) {
			return false, "", err
		}
		nodes := &corev1.NodeList{}
		err = v.scene.Client.List(ctx, nodes, client.MatchingLabels{corev1.LabelOSStable: "windows"})
		return err == nil && len(nodes.Items) == 0, fmt.Sprintf("%d Windows nodes", len(nodes.Items)), err
	})
	if err != nil {
		return err
	}
	facts, err := v.host.windows().System.Facts(ctx)
	if err == nil && facts.BootID != v.boot {
		err = fmt.Errorf("the boot was %s, and is %s", v.boot, facts.BootID)
	}
	return err
}

// settle is the time for Windows to release removed objects.
const settle = time.Minute

// compare compares the host with the snapshot from before the join.
func (v *visit) compare(ctx context.Context) error {
	var left []string
	err := wait.PollUntilContextTimeout(ctx, 5*time.Second, settle, true, func(ctx context.Context) (bool, error) {
		after, err := v.host.look(ctx)
		if err != nil {
			return false, err
		}
		left = slices.DeleteFunc(differences(v.before, after), v.ofTheLab)
		return len(left) == 0, v.keepSnapshot("after.json", after)
	})
	text := strings.Join(left, "\n")
	writeErr := keep(v.results, "differences.txt", []byte(text))
	if len(left) > 0 {
		return fmt.Errorf("there are %d differences, see differences.txt: %s", len(left), text)
	}
	return errors.Join(err, writeErr)
}

// ofTheLab reports whether a difference is the lab's network on simulated hosts.
func (v *visit) ofTheLab(line string) bool {
	return v.simulated && strings.Contains(line, ` file c:\etc`)
}
