package diagnosis_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// web returns the page with the state of a cluster.
func web(t *testing.T, s diagnosis.Snapshot) string {
	t.Helper()
	status := diagnosis.Summarize(s)
	page := diagnosis.Page{Now: now(), Status: &status, Clean: diagnosis.Visible, Files: []string{"status.txt"},
		Missing: []string{"node win-011: no answer"}}
	var text bytes.Buffer
	if err := page.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestA75_ThePageOfTheFleetHasReasonsAndFixes(t *testing.T) {
	t.Parallel()
	s := fleet(12)
	says(&s.Instances[0], contract.ReasonKeyRefused, "<script>alert(1)</script>\x1b[2J")
	text := web(t, s)
	for _, want := range []string{"<b>12</b>hosts", `<progress value="2" max="4">`, "W202 KeyRefused", "Add the public key",
		`<span class="Failing">Failing</span>`, `<span class="Waiting">Waiting</span>`, `<span class="Ready">Ready</span>`,
		`<progress value="2" max="5">`, "10.0.0.999: W101", "HostsFailing", "maxUnavailable 5%", "no answer",
		`href="status.txt"`, "&lt;script&gt;"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range []string{"<script", "\x1b", "http:", "https:", "src="} {
		if strings.Contains(text, not) {
			t.Errorf("the page has %q", not)
		}
	}
	if strings.Index(text, `class="Failing">Failing`) > strings.Index(text, `class="Ready">Ready`) {
		t.Error("hosts without a problem are listed first")
	}
}

// TestA75_ThePageOfTheFleetFitsABrowser opens the page in a browser, once in a window as wide as a screen, and once in
// a window as wide as a phone.
func TestA75_ThePageOfTheFleetFitsABrowser(t *testing.T) {
	t.Parallel()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && browser == "" {
			browser = path
		}
	}
	if browser == "" {
		t.Skip("Chromium is not installed")
	}
	s := fleet(500)
	says(&s.Instances[0], contract.ReasonKeyRefused, strings.Repeat("without-a-blank-", 40))
	dir := t.TempDir()
	// The page contains no script. The test adds a script that reports the size of the rendered page.
	text := web(t, s) + `<script>document.title = [innerWidth, document.documentElement.scrollWidth,
document.querySelectorAll("tr").length, getComputedStyle(document.querySelector(".more")).display,
getComputedStyle(document.querySelector(".Ready")).color].join(" ")</script>`
	file := filepath.Join(dir, "fleet.html")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for width, more := range map[int]string{1400: "table-cell", 500: "none"} {
		command := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu",
			"--user-data-dir="+filepath.Join(dir, fmt.Sprint(width)), fmt.Sprintf("--window-size=%d,900", width),
			"--dump-dom", "file://"+file)
		out, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`<title>(\d+) (\d+) (\d+) (\S+) (rgb.*)</title>`).FindStringSubmatch(string(out))
		if found == nil {
			t.Fatalf("the browser did not render the page: %.500s", out)
		}
		// The second number is the width of the page without the vertical scroll bar.
		if wide, err := strconv.Atoi(found[2]); err != nil || found[1] != fmt.Sprint(width) || wide > width {
			t.Errorf("the page is %s wide in a window of %s, want %d", found[2], found[1], width)
		}
		// Expect one row for each host, three rows for reasons, and two rows for headers.
		if found[3] != "505" || found[4] != more || found[5] != "rgb(26, 127, 55)" {
			t.Errorf("at %d: %s rows, further columns %s, Ready is %s", width, found[3], found[4], found[5])
		}
	}
}

func TestA75_AWatchShowsTheProgressOfEachNode(t *testing.T) {
	t.Parallel()
	status := diagnosis.Summarize(fleet(12))
	var plain, bars bytes.Buffer
	if err := status.Print(&plain, diagnosis.Style{Now: now()}); err != nil {
		t.Fatal(err)
	}
	if err := status.Print(&bars, diagnosis.Style{Now: now(), Bars: true}); err != nil {
		t.Fatal(err)
	}
	const want = "NODE       [############------------------] win-008              Updating/Draining\n" +
		"NODE       [######------------------------] win-009              Updating/Waiting\n" +
		"NODE       [###---------------------------] 10.0.0.0             Connecting\n"
	if !strings.Contains(bars.String(), want) || strings.Contains(plain.String(), "NODE  ") {
		t.Errorf("%s\nlacks\n%s", bars.String(), want)
	}
}

func TestA75_TablesWrapAtWordsAndReadyIsGreen(t *testing.T) {
	t.Parallel()
	s := fleet(12)
	status := diagnosis.Summarize(s)
	style := diagnosis.Style{Now: now(), Wide: true, Width: 170, Color: true}
	var out bytes.Buffer
	if err := status.Print(&out, style); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "\nHOST")
	if !regexp.MustCompile(`(?m)^10\.0\.0\.11 +\x1b\[32mReady\x1b\[0m`).MatchString(table) {
		t.Errorf("Ready is not green:\n%q", table)
	}
	if !regexp.MustCompile(`(?m)^10\.0\.0\.0 .* KeyRefused +10.0.0.0 does not accept the\n +key$`).MatchString(table) {
		t.Errorf("the message is not wrapped at a word:\n%s", table)
	}
	for line := range strings.Lines(table) {
		line = strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(line)
		if len([]rune(line)) > 171 {
			t.Errorf("a line has %d columns: %s", len(line), line)
		}
	}
}
