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

// triedBy returns the tests of commands, by the command's beginning. Commands that begin with kubectl are run
// below.
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

// command is a command of a page, with its here-document.
type command struct{ page, text string }

var (
	// starts is the first line of a command, which is indented or in a fence; shells and programs are
	// those that pages name.
	starts = regexp.MustCompile(`^(?: {4,}|\t+)(?:\$ )?((?:(?:kubectl|oc|helm|wmco-e2e|make|go|ssh|ssh-keygen|scp|kubeadm|curl|` +
		`skopeo|net|reg|icacls|[A-Z][a-z]+-[A-Z]\w+|ln|cd|[A-Z_]+=\S+|[a-z]+=\$\(\w+)(?: |$)|\S+\.exe(?: |$)).*)$`)
	comment = regexp.MustCompile(`\s+# .*$`)
	// continued is a line whose command goes on in the next.
	continued = regexp.MustCompile(`(?:\\|\||&&)$`)
	blank     = regexp.MustCompile(`<[^<>]+>`)
	// fence is a block of YAML with how far it is indented.
	fence  = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	// block is what is indented further than a list, up to the next empty line.
	block = regexp.MustCompile(`(?m)^( {4,})((?:apiVersion|spec):.*\n(?:^ {4,}.*\n)*)`)
	// changes are the verbs of kubectl that a try must not carry out.
	changes = regexp.MustCompile(`\bkubectl (?:apply|create|patch|annotate|label|delete|drain|uncordon|expose|` +
		`autoscale)\b`)
)

// commands lists the commands of README.md and of the pages directly in docs/.
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
		t.Fatalf("only %d commands were found", len(all))
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

// untried are the beginnings of commands that docs/testing.md says no test runs.
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

// beginning gives the longest beginning of a command among those that are known.
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
			t.Errorf("%s: no test runs %q: name one in triedBy, or the command in docs/testing.md", c.page, c.text)
		}
	}
	for prefix := range nowhere {
		if !used[prefix] && !strings.HasPrefix(prefix, "kind: ") {
			t.Errorf("docs/testing.md says that %q is tried nowhere, and no page has it", prefix)
		}
	}
	for prefix, test := range elsewhere {
		found := exec.CommandContext(t.Context(), "git", "grep", "-q", "^func "+test+"(", "--", "..")
		if err := found.Run(); err != nil || !used[prefix] {
			t.Errorf("%q, tried by %s: that test, or such a command, does not exist (%v)", prefix, test, err)
		}
	}
}

// Every command for kubectl is run as the page has it, with names for its blanks, by a shell. What
// would change something is sent as a dry run, which the API server decides like the real one.
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
		t.Errorf("only %d commands were tried", tried)
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

// settings are what is shown of a WindowsMachineConfig alone.
const settings = "\napiVersion: windowsmachineconfig.openshift.io/v1alpha1\nkind: WindowsMachineConfig\nmetadata: {name: cluster}"

// indented are the objects in a page's blocks of YAML that are indented, not fenced: a whole object, or the
// spec of a WindowsMachineConfig.
func indented(t *testing.T, page string) (all []string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range block.FindAllStringSubmatch(fenced.ReplaceAllString(string(content), ""), -1) {
		text := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")
		switch {
		case strings.Contains(text, "\nEOF\n"): // it is part of a command
		case strings.HasPrefix(text, "\napiVersion: "):
			all = append(all, text)
		case strings.HasPrefix(text, "\nspec:\n"):
			all = append(all, settings+text)
		}
	}
	return all
}

// examples are the objects in a page's blocks of YAML.
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
		t.Errorf("only %d examples were tried", tried)
	}
}

// desk is a directory with what commands name: the manifests, and files of the user's.
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

// furnish makes the objects that commands name.
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
