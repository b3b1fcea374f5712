package config_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/openshift"
)

// triedBy maps the beginning of each command to the test that runs it. This file runs commands that begin with
// kubectl.
func triedBy() map[string]string {
	const image, bundle = "TestA64_AnImageIsPushedAndPulledBackWithItsPartsAndItsSignature",
		"TestA67_FromCopiesOfWhatTheBundleNamesEverythingInstallsAndHostsJoin"
	return map[string]string{
		"make image":                      bundle,
		"make bundle":                     bundle,
		"kubectl get --raw ":              "TestA38_LogsOfANodeAreReadThroughTheAPIServer",
		"kubectl windows ":                "TestA75_ThePluginAtAnAPIServer",
		"wmco-e2e":                        "TestA76_TheProgramRunsTheListAndTouchesNothingOfTheUser",
		"make wmco-e2e":                   "TestA76_TheProgramRunsTheListAndTouchesNothingOfTheUser",
		"make chart":                      "TestA65_TheSameSourceMakesTheSameArchive",
		"helm ":                           "TestA65_TheChartIsInstalledUpgradedAndRemoved",
		"go run -C tools/image . verify":  image,
		"go run -C tools/image . supply":  "TestAProgramIsTakenOutOfTheImageThatCarriesIt",
		"WATCH_NAMESPACE=windows go run ": "TestA65_TheOperatorIsNotRemovedWhileHostsAreJoined",
	}
}

// command is a command on a page, together with its here-document.
type command struct{ page, text string }

var (
	// starts matches the first line of a command, which is indented or in a fence. It has the shells and programs
	// that the pages use.
	starts = regexp.MustCompile(`^(?: {4,}|\t+)(?:\$ )?((?:(?:kubectl|oc|helm|wmco-e2e|make|go|ssh|ssh-keygen|scp|kubeadm|curl|` +
		`skopeo|net|reg|icacls|[A-Z][a-z]+-[A-Z]\w+|ln|cd|[A-Z_]+=\S+|[a-z]+=\$\(\w+)(?: |$)|\S+\.exe(?: |$)).*)$`)
	comment = regexp.MustCompile(`\s+# .*$`)
	// continued matches a line whose command continues on the next line.
	continued = regexp.MustCompile(`(?:\\|\||&&)$`)
	blank     = regexp.MustCompile(`<[^<>]+>`)
	// fence matches a fenced block of YAML and its indentation.
	fence  = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	// block matches YAML that is indented further than a list, up to the next empty line.
	block = regexp.MustCompile(`(?m)^( {4,})((?:apiVersion|spec):.*\n(?:^ {4,}.*\n)*)`)
	// changes matches kubectl commands that are only run as a dry run.
	changes = regexp.MustCompile(`\bkubectl (?:apply|create|patch|annotate|label|delete|drain|uncordon|expose|` +
		`autoscale)\b`)
)

// commands returns the commands in README.md and on the pages directly in docs/.
func commands(t *testing.T) (all []command) {
	t.Helper()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	for _, page := range append(pages, "../README.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, commandsOf(filepath.Base(page), strings.Split(string(content), "\n"))...)
	}
	if len(all) < 100 {
		t.Fatalf("found only %d commands", len(all))
	}
	return all
}

func commandsOf(page string, lines []string) (all []command) {
	for i := 0; i < len(lines); i++ {
		match := starts.FindStringSubmatch(lines[i])
		if match == nil {
			continue
		}
		indent := strings.Index(lines[i], match[1])
		text := comment.ReplaceAllString(match[1], "")
		for i+1 < len(lines) && continued.MatchString(text) {
			i++
			text = strings.TrimSpace(strings.TrimSuffix(text, `\`)) + " " + strings.TrimSpace(lines[i])
		}
		if strings.Contains(text, "<<EOF") {
			for i+1 < len(lines) && !strings.HasSuffix(text, "\nEOF") {
				i++
				text += "\n" + lines[i][min(indent, len(lines[i])):]
			}
			all = append(all, command{page, strings.Replace(text, "<<EOF", "<<'EOF'", 1)})
			continue
		}
		for part := range strings.SplitSeq(text, " && ") {
			all = append(all, command{page, part})
		}
	}
	return all
}

// untried returns the beginnings of commands that no test runs, according to docs/testing.md.
func untried(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Commands of these pages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all := map[string]bool{}
	for row := range strings.Lines(section) {
		if !strings.HasPrefix(row, "| `") {
			continue
		}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, " | ")[0], -1) {
			all[span[1]] = true
		}
	}
	return all
}

// beginning returns the longest known beginning of a command.
func beginning[V any](text string, known map[string]V) string {
	longest := ""
	for prefix := range known {
		if strings.HasPrefix(text+" ", prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return longest
}

func TestEachCommandOfThePagesIsTriedOrNamedAsTriedNowhere(t *testing.T) {
	t.Parallel()
	nowhere, elsewhere, used := untried(t), triedBy(), map[string]bool{}
	for _, c := range commands(t) {
		by, without := beginning(c.text, elsewhere), beginning(c.text, nowhere)
		used[by], used[without] = true, true
		if by == "" && without == "" && !strings.HasPrefix(c.text, "kubectl ") {
			t.Errorf("%s: no test runs %q: add its test to triedBy, or the command to docs/testing.md", c.page, c.text)
		}
	}
	for prefix := range nowhere {
		if !used[prefix] && !strings.HasPrefix(prefix, "kind: ") {
			t.Errorf("docs/testing.md says that no test runs %q, but no page has this command", prefix)
		}
	}
	for prefix, test := range elsewhere {
		found := exec.CommandContext(t.Context(), "git", "grep", "-q", "^func "+test+"(", "--", "..")
		if err := found.Run(); err != nil || !used[prefix] {
			t.Errorf("%q, which %s should run: the test or the command does not exist (%v)", prefix, test, err)
		}
	}
}

// A shell runs each kubectl command of the pages, with values for the placeholders. A command that would change
// something is sent as a dry run, and the API server checks it like a real request.
func TestAnAPIServerAcceptsTheCommandsOfThePages(t *testing.T) {
	t.Parallel()
	lab := own(t, install)
	furnish(t, lab)
	nowhere := untried(t)
	dir := desk(t)
	tried := 0
	for _, c := range commands(t) {
		if !strings.HasPrefix(c.text, "kubectl ") || beginning(c.text, nowhere)+beginning(c.text, triedBy()) != "" {
			continue
		}
		tried++
		t.Run(c.page+": "+strings.Split(c.text, "\n")[0], func(t *testing.T) {
			if output, err := try(t.Context(), lab, dir, c.text); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
	if tried < 40 {
		t.Errorf("ran only %d commands", tried)
	}
}

// try runs a command with a kubectl that fits the API server.
func try(ctx context.Context, lab *cluster.Cluster, dir, text string) (string, error) {
	fill := strings.NewReplacer("<registry>", "registry.example.com", "<digest>", strings.Repeat("0", 64),
		"<namespace>", "default", "<file>", "windows-key", " -w", "")
	text = blank.ReplaceAllString(fill.Replace(text), "win-1")
	text = changes.ReplaceAllString(text, "$0 --dry-run=server")
	// The inputs of these filters don't exist: logs, requests, a Secret.
	for _, filter := range []string{" | tail ", " | grep ", " | jq ", " | kubectl replace "} {
		text, _, _ = strings.Cut(text, filter)
	}
	c := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", text)
	c.Dir = dir
	c.Env = append(os.Environ(), "KUBECONFIG="+lab.Kubeconfig,
		"PATH="+filepath.Dir(lab.Binaries.Kubectl)+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := c.CombinedOutput()
	return string(output), err
}

// settings is the header for examples that show only the spec of a WindowsMachineConfig.
const settings = "\napiVersion: windowsmachineconfig.openshift.io/v1alpha1\nkind: WindowsMachineConfig\nmetadata: {name: cluster}"

// indented returns the objects in a page's YAML blocks that are indented, not fenced: a whole object, or the spec of
// a WindowsMachineConfig.
func indented(t *testing.T, page string) (all []string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range block.FindAllStringSubmatch(fenced.ReplaceAllString(string(content), ""), -1) {
		text := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")
		switch {
		case strings.Contains(text, "\nEOF\n"): // this YAML is part of a command
		case strings.HasPrefix(text, "\napiVersion: "):
			all = append(all, text)
		case strings.HasPrefix(text, "\nspec:\n"):
			all = append(all, settings+text)
		}
	}
	return all
}

// examples returns the objects in a page's YAML blocks.
func examples(t *testing.T, page string) (all []string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range fence.FindAllStringSubmatch(string(content), -1) {
		text := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")
		if strings.HasPrefix(text, "\napiVersion: ") {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no example", page)
	}
	return all
}

func TestAnAPIServerAcceptsTheExamplesOfThePages(t *testing.T) {
	t.Parallel()
	lab := own(t, install)
	if err := openshift.Install(t.Context(), lab.Admin(), openshift.Options{APIServer: lab.URL, CA: lab.CAPEM,
		Platform: configv1.NonePlatformType}); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []command
	for _, page := range []string{"workloads.md", "pods.md", "storage.md", "plugin.md"} {
		for _, example := range examples(t, page) {
			all = append(all, command{page, example})
		}
	}
	for _, page := range pages {
		for _, example := range indented(t, filepath.Base(page)) {
			all = append(all, command{filepath.Base(page), example})
		}
	}
	nowhere, tried := untried(t), 0
	for _, example := range all {
		_, kind, _ := strings.Cut(example.text, "\nkind: ")
		if kind, _, _ = strings.Cut(kind, "\n"); nowhere["kind: "+kind] {
			continue
		}
		tried++
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "example.yaml"), []byte(example.text), 0o600); err != nil {
			t.Fatal(err)
		}
		output, err := try(t.Context(), lab, dir, "kubectl apply --server-side --force-conflicts -f example.yaml")
		if err != nil || strings.Contains(output, "Warning") {
			t.Errorf("%s: %v: %s\n%s", example.page, err, output, example.text)
		}
	}
	if tried < 14 {
		t.Errorf("tried only %d examples", tried)
	}
}

// desk creates a directory with the files that commands use: the manifests, and a user's files.
func desk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if err = os.Symlink(config, filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"windows-key": "x", "ca.crt": "x", "private-key.pem": "x",
		"web.yaml": examples(t, "workloads.md")[0]}
	for name, content := range files {
		if err = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// furnish creates the objects that commands use.
func furnish(t *testing.T, lab *cluster.Cluster) {
	t.Helper()
	admin := connect(t, lab.Admin())
	for _, name := range []string{"windows", "kube-flannel", "openshift-cluster-api"} {
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"win-1", "win-001"} {
		if _, err := admin.CoreV1().Nodes().Create(t.Context(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.CoreV1().Secrets(contract.MachineAPINamespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "windows-user-data"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	objects := "apiVersion: windowsmachineconfig.openshift.io/v1alpha1\nkind: WindowsMachineConfig\n" +
		"metadata: {name: cluster}\n"
	for _, name := range []string{"win-1", "10.1.42.1"} {
		objects += "---\napiVersion: windowsmachineconfig.openshift.io/v1alpha1\nkind: WindowsInstance\nmetadata: {name: " +
			name + ", namespace: " + contract.OperatorNamespace + "}\nspec: {address: 10.1.42.1, username: Administrator}\n"
	}
	objects += "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: windows-instances, namespace: " +
		contract.OperatorNamespace + "}\n---" + examples(t, "workloads.md")[0]
	linux := strings.NewReplacer("name: web", "name: linux", "app: web", "app: linux")
	objects += "---" + linux.Replace(examples(t, "workloads.md")[0])
	for _, pod := range append(examples(t, "pods.md"), examples(t, "storage.md")...) {
		objects += "---" + strings.Replace(pod, "name: user", "name: win-1", 1)
	}
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-f", path}, {"-k", "workload"}} {
		run(t, ".", lab.Binaries.Kubectl, append([]string{"--kubeconfig", lab.Kubeconfig, "apply", "--server-side"},
			args...)...)
	}
}
