package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/kubectlwindows"
)

// maxWords is the maximal length of a quick start.
const maxWords = 1000

var (
	numbered = regexp.MustCompile(`(?m)^(\d+)\. `)
	// shown matches a fenced block of output and its indentation.
	shown = regexp.MustCompile("(?ms)^( *)```text\n(.*?)^ *```$")
	// pluginWord matches one argument as a shell splits them, including quotes.
	pluginWord = regexp.MustCompile(`"[^"]*"|'[^']*'|\S+`)
	pathsNamed = regexp.MustCompile("(?m)(?:^|[ `])((?:config|docs|tools)/[A-Za-z0-9_./-]+)")
)

// quickStarts reads the quick starts by the names of their files.
func quickStarts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../docs/quickstart-*.md")
	if err != nil || len(files) != 3 {
		t.Fatalf("quick starts: %v, %v", files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = string(content)
	}
	return all
}

func TestA91_AQuickStartIsOnePageOfNumberedStepsThatEndsWithAWebServer(t *testing.T) {
	t.Parallel()
	for page, content := range quickStarts(t) {
		if words := len(strings.Fields(content)); words > maxWords {
			t.Errorf("%s has %d words", page, words)
		}
		for i, step := range numbered.FindAllStringSubmatch(content, -1) {
			if step[1] != fmt.Sprint(i+1) {
				t.Errorf("%s: step %d has the number %s", page, i+1, step[1])
			}
		}
		_, end, ends := strings.Cut(content, "\n## Run a web server\n")
		if !ends || strings.Contains(end, "\n## ") || !strings.Contains(end, "You see `HTTP/1.1 200 OK`") {
			t.Errorf("%s does not end with a web server that answers", page)
		}
		for _, path := range pathsNamed.FindAllStringSubmatch(content, -1) {
			if _, err := os.Stat(filepath.Join("..", path[1])); err != nil {
				t.Errorf("%s names %s: %v", page, path[1], err)
			}
		}
	}
}

// Each command of the plugin in any page exists in the plugin, with its flags. kubectl and oc find the plugin in
// the same way.
func TestA91_ThePluginHasTheCommandsAndFlagsOfThePages(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, c := range commands(t) {
		_, arguments, plugin := strings.Cut(c.text, " windows ")
		if !plugin || !strings.HasPrefix(c.text, "kubectl windows ") && !strings.HasPrefix(c.text, "oc windows ") {
			continue
		}
		tried++
		arguments, _, _ = strings.Cut(blank.ReplaceAllString(arguments, "win-1"), " | ")
		words := append(pluginWord.FindAllString(arguments, -1), "--help")
		var out bytes.Buffer
		code := kubectlwindows.Run(t.Context(), append([]string{"kubectl-windows"}, words...),
			genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
		if code != 0 || !strings.Contains(out.String(), "kubectl windows "+words[0]) {
			t.Errorf("%s: %q: exit code %d\n%s", c.page, c.text, code, &out)
		}
	}
	if tried < 20 {
		t.Errorf("only %d commands were tried", tried)
	}
}

// The quick start and docs/olm.md create the same objects for OLM. An API server accepts the objects for kubectl in
// TestAnAPIServerAcceptsTheCommandsOfThePages.
func TestA91_TheObjectsOfTheQuickStartsParse(t *testing.T) {
	t.Parallel()
	subscribed := map[string]string{}
	for _, c := range commands(t) {
		first, text, document := strings.Cut(c.text, "<<'EOF'\n")
		if !document {
			continue
		}
		text = strings.TrimSuffix(text, "EOF")
		for object := range strings.SplitSeq(text, "\n---\n") {
			var kind metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(object), &kind); err != nil || kind.Kind == "" || kind.APIVersion == "" ||
				kind.Name == "" {
				t.Errorf("%s: %q: %v\n%s", c.page, first, err, object)
			}
		}
		if strings.Contains(text, "\nkind: Subscription\n") {
			subscribed[c.page] = text
		}
	}
	if subscribed["olm.md"] == "" || subscribed["olm.md"] != subscribed["quickstart-openshift.md"] {
		t.Errorf("the objects for OLM differ:\n%s", subscribed)
	}
}

// The output that the quick starts show is what the plugin prints.
func TestA91_TheOutputOfTheQuickStartsIsWhatThePluginPrints(t *testing.T) {
	t.Parallel()
	const address, revision = "192.0.2.10", "0.1.0-add35a4c1f"
	now := time.Now()
	since := metav1.NewTime(now.Add(-48 * time.Second))
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status}
	}
	s := diagnosis.Snapshot{Now: now,
		Lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("wmco-5d8f"),
			LeaseDurationSeconds: new(int32(137)), RenewTime: &metav1.MicroTime{Time: now.Add(-20 * time.Second)}}},
		Instances: []v1alpha1.WindowsInstance{{ObjectMeta: metav1.ObjectMeta{Name: address},
			Spec: v1alpha1.WindowsInstanceSpec{Address: address},
			Status: v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseReady, NodeName: "win-1", Revision: revision,
				DesiredRevision: revision,
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
					LastTransitionTime: since}}}}},
		Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "win-1",
			Annotations: map[string]string{contract.RevisionAnnotation: revision}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
				Status: corev1.ConditionTrue, LastTransitionTime: since}}}}},
	}
	s.Config.Status = v1alpha1.WindowsMachineConfigStatus{
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionAvailable, metav1.ConditionTrue),
			condition(v1alpha1.ConditionUpgradeable, metav1.ConditionTrue),
			condition(v1alpha1.ConditionDegraded, metav1.ConditionFalse),
			condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue)},
		Instances: v1alpha1.InstanceCounts{Total: 1, Ready: 1},
		Rollout:   v1alpha1.RolloutStatus{Revision: revision, Phase: v1alpha1.RolloutIdle, Total: 1, Updated: 1, Staged: 1}}
	status := diagnosis.Summarize(s)
	var fleet bytes.Buffer
	if err := status.Print(&fleet, diagnosis.Style{Now: now}); err != nil {
		t.Fatal(err)
	}
	printed := map[int]string{ // by the number of the output on a page
		0: printedBy(t, "preflight.go", `"HOST\tCAN JOIN\tREASON"`, "HOST        CAN JOIN  REASON\n"+address+"  yes\n"),
		1: printedBy(t, "entry.go", `"host %s added: kubectl windows why %[1]s shows how far it is"`,
			"host "+address+" added: kubectl windows why "+address+" shows how far it is\n"),
		2: fleet.String(),
	}
	for page, content := range quickStarts(t) {
		outputs := shown.FindAllStringSubmatch(content, -1)
		if len(outputs) != len(printed) {
			t.Fatalf("%s shows %d outputs", page, len(outputs))
		}
		for i, output := range outputs {
			text := strings.ReplaceAll("\n"+output[2], "\n"+output[1], "\n")[1:]
			if text != printed[i] {
				t.Errorf("%s shows\n%s\nand the plugin prints\n%s", page, text, printed[i])
			}
		}
	}
}

// printedBy checks that a file of the plugin has the format of an output, and returns the output.
func printedBy(t *testing.T, file, format, output string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("../internal/kubectlwindows", file))
	if err != nil || !strings.Contains(string(source), format) {
		t.Errorf("%s does not print %s: %v", file, format, err)
	}
	return output
}
