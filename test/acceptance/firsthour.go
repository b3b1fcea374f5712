package acceptance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/docs"
	"github.com/windows-nodes/wmco/internal/contract"
)

// firstHourSection is the heading of the rows of docs/first-run.md in the results.
const firstHourSection = "First run on real Windows"

// Patterns for a line of docs/first-run.md, | H01 what | … |, and for a command in it.
var (
	lineOfPage = regexp.MustCompile(`^\| <a id="(H\d\d)"></a>H\d\d (.+?) \| `)
	codeOfPage = regexp.MustCompile("`([^`]+)`")
)

// question defines how to test one line of docs/first-run.md.
type question struct {
	stage stage
	// about returns an error that says why the line doesn't apply to a node. If about is nil, the line applies to every
	// node.
	about func(h hour, ctx context.Context, n *corev1.Node) error
	// script creates the script that runs on the host from the commands in the line. If script is nil, nothing runs on
	// the host.
	script func(commands []string) string
	// judge returns an error if the script's output is wrong. If judge is nil, people judge the output, which is in the
	// evidence.
	judge func(h hour, ctx context.Context, n *corev1.Node, answer string) error
	// If only people can test the line, the field `why` contains the reason, and the other fields are empty.
	why string
}

// Reasons why only people can test a line.
const (
	byHand   = "by hand: the page says how"
	asItGoes = "by hand: the host is not a node at that time, so no pod runs there"
)

// questions returns how to test each line of docs/first-run.md.
func questions() map[string]question {
	return map[string]question{
		"H01": {stage: stageNodes, script: first, judge: ofText(buildIsSupported)},
		"H02": {stage: stageNodes, script: first},
		"H03": {stage: stageNodes, script: first, judge: ofText(oneRoute)},
		"H04": {why: byHand},
		"H05": {stage: stageDisrupt, judge: hour.bootIsNamed},
		"H06": {why: byHand},
		"H07": {why: byHand},
		"H08": {stage: stageNodes, script: first, judge: ofText(oneProcessEach)},
		"H09": {stage: stageDisrupt, script: another("kubelet"), judge: ofText(anotherProcess)},
		"H10": {stage: stageDisrupt, script: func(c []string) string {
			return c[0] + "; Start-Sleep 90; @(" + c[1] + ").Count"
		}, judge: ofText(oneIsThere)},
		"H11": {stage: stageNodes, script: first, judge: hour.noPodHasIt},
		"H12": {stage: stageDisrupt, about: hour.onServer2025, judge: shownBy("A39")},
		"H13": {why: byHand},
		"H14": {why: asItGoes},
		"H15": {why: asItGoes},
		"H16": {why: asItGoes},
		"H17": {why: asItGoes},
		"H18": {why: byHand},
		"H19": {stage: stageNodes, about: hour.onAzure, judge: shownBy("A40")},
		"H20": {stage: stageNodes, about: hour.onAzure, script: first, judge: ofText(metadataAnswers)},
		"H21": {stage: stageDisrupt, about: hour.onAzure, judge: hour.nodeComesBack},
		"H22": {stage: stageNodes, about: hour.withFlannel, script: first, judge: ofText(flannelsNetwork)},
		"H23": {stage: stageDisrupt, about: hour.withFlannel, script: another("flanneld"),
			judge: ofText(anotherProcess)},
		"H24": {stage: stageDisrupt, about: hour.withFlannel, judge: shownBy("A39")},
		"H25": {why: byHand},
	}
}

// firstHour returns the lines of docs/first-run.md as rows.
func firstHour() ([]Row, error) {
	rows, err := rowsOf("the page of the first run", docs.FirstRun, lineOfPage, questions(),
		func(number, line string, q question) trial {
			var commands []string
			for _, code := range codeOfPage.FindAllStringSubmatch(line, -1) {
				commands = append(commands, strings.ReplaceAll(code[1], `\|`, "|"))
			}
			return q.trial(number, commands)
		})
	for i := range rows {
		rows[i].Section = firstHourSection
	}
	return rows, err
}

// trial returns a trial that asks a question on each node of the run.
func (q question) trial(number string, commands []string) trial {
	t := trial{stage: q.stage, why: q.why, unrun: true}
	if q.why != "" {
		return t
	}
	if q.script != nil {
		t.needs = []Need{NeedContainers}
	}
	t.try = func(ctx context.Context, r *run) error {
		h, script := hour{r}, ""
		if q.script != nil {
			script = q.script(commands)
		}
		if len(r.nodes) == 0 {
			return cannot("no host joined in this run, and the run does not touch other nodes")
		}
		var problems []error
		for _, mine := range r.nodes {
			err := h.put(ctx, q, number, mine.Name, script)
			if err != nil {
				err = fmt.Errorf("node %s: %w", mine.Name, err)
			}
			problems = append(problems, err)
		}
		return errors.Join(problems...)
	}
	return t
}

// hour is a run that tests the lines of docs/first-run.md.
type hour struct{ *run }

// put asks a question on one node.
func (h hour) put(ctx context.Context, q question, number, name, script string) error {
	n, err := h.node(ctx, name)
	if err != nil {
		return err
	}
	if q.about != nil {
		if err = q.about(h, ctx, n); err != nil {
			return err
		}
	}
	answer := ""
	if script != "" {
		answer, err = h.onHost(ctx, n, number, script)
		if answer != "" {
			h.Evidence.Add("trials/"+number+"-"+name+".txt", []byte("PS> "+script+"\n"+answer))
		}
		if err != nil {
			return err
		}
	}
	if q.judge == nil {
		return cannot("the right answer depends on the host: compare trials/%s-%s.txt in the archive with the page",
			number, name)
	}
	return q.judge(h, ctx, n, answer)
}

// first returns the first command of the line unchanged.
func first(commands []string) string { return commands[0] }

// The function `another` returns a script that runs the line's first command, which ends a process. The script prints
// the process's id before the command and a minute after it.
func another(process string) func([]string) string {
	id := "(Get-Process " + process + ").Id"
	return func(commands []string) string {
		return id + "; " + commands[0] + "; Start-Sleep 60; " + id
	}
}

func ofText(judge func(string) error) func(hour, context.Context, *corev1.Node, string) error {
	return func(_ hour, _ context.Context, _ *corev1.Node, answer string) error { return judge(answer) }
}

// shownBy judges a line by whether a row of the acceptance list was shown in this run.
func shownBy(row string) func(hour, context.Context, *corev1.Node, string) error {
	return func(h hour, _ context.Context, _ *corev1.Node, _ string) error {
		if !h.shown[row] {
			return cannot("row %s covers this line, and this row was not shown", row)
		}
		return nil
	}
}

func (hour) onServer2025(_ context.Context, n *corev1.Node) error {
	if is := n.Labels[contract.BuildLabel]; !strings.HasSuffix(is, "26100") {
		return cannot("the line is about Windows Server 2025, but the node has build %s", is)
	}
	return nil
}

func (hour) onAzure(_ context.Context, n *corev1.Node) error {
	if !strings.HasPrefix(n.Spec.ProviderID, "azure://") {
		return cannot("the node is not on Azure")
	}
	return nil
}

func (h hour) withFlannel(ctx context.Context, _ *corev1.Node) error {
	config, err := h.config(ctx)
	if err == nil && config.Spec.Network.Type != v1alpha1.NetworkFlannel {
		err = cannot("the network is not flannel")
	}
	return err
}

var (
	buildAndRevision = regexp.MustCompile(`(?m)^\s*(\d{5})\s+(\d+)\s*$`)
	program          = regexp.MustCompile(`(?mi)^\s*\d+\s+\d+\s+(C:\\.+?\.exe)\s*$`)
	flannelNetwork   = regexp.MustCompile(`(?mi)^\s*flannel\.\d+\s+overlay\s+\S+`)
	number           = regexp.MustCompile(`(?m)^\s*(\d+)\s*$`)
)

// buildIsSupported checks line H01. The overlay network needs KB5012637, which is revision 681 of build 20348.
func buildIsSupported(answer string) error {
	match := buildAndRevision.FindStringSubmatch(answer)
	if match == nil || !slices.Contains([]string{"17763", "20348", "26100"}, match[1]) {
		return wrongf("the build is none of 17763, 20348 and 26100: %s", brief(answer))
	}
	if revision, err := strconv.Atoi(match[2]); match[1] == "20348" && (err != nil || revision < 681) {
		return wrongf("revision %s of build 20348 is older than 681: the overlay network needs KB5012637", match[2])
	}
	return nil
}

// oneRoute checks line H03. The output is a table whose header has two lines.
func oneRoute(answer string) error {
	if lines := slices.DeleteFunc(strings.Split(answer, "\n"), func(line string) bool {
		return strings.TrimSpace(line) == ""
	}); len(lines) != 3 {
		return wrongf("there must be exactly one default route: set spec.nodeIP of the WindowsInstance: %s",
			brief(answer))
	}
	return nil
}

// oneProcessEach checks line H08. It doesn't count the service wrappers, because every service has one.
func oneProcessEach(answer string) error {
	seen := map[string]int{}
	for _, match := range program.FindAllStringSubmatch(answer, -1) {
		seen[strings.ToLower(match[1][strings.LastIndex(match[1], `\`)+1:])]++
	}
	if len(seen) == 0 {
		return wrongf("no program of the node runs: %s", brief(answer))
	}
	for name, count := range seen {
		if count > 1 && name != "kube-log-runner.exe" && name != "service-wrapper.exe" {
			return wrongf("%d processes of %s run: %s", count, name, brief(answer))
		}
	}
	return nil
}

// anotherProcess checks lines H09 and H23: the ids before and after must differ.
func anotherProcess(answer string) error {
	ids := number.FindAllStringSubmatch(answer, -1)
	if len(ids) != 2 || ids[0][1] == ids[1][1] {
		return wrongf("there must be one process before and a different one after: %s", brief(answer))
	}
	return nil
}

// oneIsThere checks line H10.
func oneIsThere(answer string) error {
	if match := number.FindAllStringSubmatch(answer, -1); len(match) != 1 || match[0][1] != "1" {
		return wrongf("there must be exactly one process: %s", brief(answer))
	}
	return nil
}

// metadataAnswers checks line H20.
func metadataAnswers(answer string) error {
	if !strings.Contains(answer, "compute") {
		return wrongf("the metadata service does not answer: %s", brief(answer))
	}
	return nil
}

// flannelsNetwork checks line H22.
func flannelsNetwork(answer string) error {
	if len(flannelNetwork.FindAllString(answer, -1)) != 1 {
		return wrongf("there must be exactly one overlay network of flannel: %s", brief(answer))
	}
	return nil
}

// noPodHasIt checks line H11.
func (h hour) noPodHasIt(ctx context.Context, n *corev1.Node, answer string) error {
	address := strings.TrimSpace(answer)
	if address == "" {
		return cannot("the node has no VIPEndpoint, because its network needs none")
	}
	pods, err := podsOn(ctx, h.clients, n.Name)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if pod.Status.PodIP == address {
			return wrongf("pod %s/%s has the address %s of kube-proxy's endpoint", pod.Namespace, pod.Name, address)
		}
	}
	return nil
}

// bootIsNamed checks line H05. Row A30 has shown that the boot ID changes with a boot. This check shows that the boot
// ID stays the same without a boot.
func (h hour) bootIsNamed(ctx context.Context, n *corev1.Node, _ string) error {
	if !h.shown["A30"] {
		return cannot("row A30, which reboots the host, was not shown")
	}
	again, err := h.node(ctx, n.Name)
	if err != nil {
		return err
	}
	name, now := n.Annotations[contract.BootIDAnnotation], again.Annotations[contract.BootIDAnnotation]
	if name == "" || name != now {
		return wrongf("the boot ID was %q and is %q, although the host has not rebooted", name, now)
	}
	return nil
}

// nodeComesBack checks line H21.
func (h hour) nodeComesBack(ctx context.Context, n *corev1.Node, _ string) error {
	if err := h.client.Delete(ctx, n, client.Preconditions{UID: &n.UID}); err != nil {
		return err
	}
	return h.await(ctx, h.Timeout, "node "+n.Name+" coming back", func(ctx context.Context) (bool, string, error) {
		now, err := h.node(ctx, n.Name)
		return err == nil && now.UID != n.UID && isReady(now) && !uninitialised(now),
			fmt.Sprintf("taints %v", now.Spec.Taints), err
	})
}

// The function brief shortens an output for a reason. The evidence has the whole output.
func brief(answer string) string {
	const most = 200
	text := strings.Join(strings.Fields(answer), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
