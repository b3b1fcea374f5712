package house_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryPageCanBeFound follows the links from README.md. Users can't find a page without a link to it.
func TestEveryPageCanBeFound(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	reached := map[string]bool{}
	var follow func(page string)
	follow = func(page string) {
		if reached[page] {
			return
		}
		reached[page] = true
		for _, match := range link.FindAllStringSubmatch(span.ReplaceAllString(pages[page], ""), -1) {
			follow(path.Join(path.Dir(page), match[1]))
		}
	}
	follow("README.md")
	for page := range pages {
		if !strings.HasPrefix(page, "docs/") && path.Dir(page) != "." {
			continue // notes in the folder of their code
		}
		if !reached[page] {
			t.Errorf("no link leads from README.md to %s", page)
		}
	}
}

// TestAnchorsExist checks the part of a link after the #. It must be a heading or an explicit anchor of the target
// page.
func TestAnchorsExist(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	for page, content := range pages {
		for _, match := range anchor.FindAllStringSubmatch(span.ReplaceAllString(content, ""), -1) {
			target := page
			if match[1] != "" {
				target = path.Join(path.Dir(page), match[1])
			}
			if !anchors(pages[target])[match[2]] {
				t.Errorf("%s links to #%s, which %s does not have", page, match[2], target)
			}
		}
	}
}

// anchors returns the anchors of a page.
func anchors(content string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(content) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			all[slug.ReplaceAllString(strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-"),
				"")] = true
		}
	}
	for _, match := range id.FindAllStringSubmatch(content, -1) {
		all[match[1]] = true
	}
	return all
}

// TestTheManualReadsInOrder follows the index of the manual: each page must end with a link to the next page of the
// index.
func TestTheManualReadsInOrder(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	manual, _, _ := strings.Cut(pages["docs/README.md"], "\n## Reference\n")
	rows := regexp.MustCompile(`(?m)^\| (\[.+?\]\((.+?)\)) \|`).FindAllStringSubmatch(manual, -1)
	if len(rows) < 10 {
		t.Fatalf("the index has %d pages", len(rows))
	}
	for i, row := range rows[1:] {
		if page := rows[i][2]; !strings.HasSuffix(pages["docs/"+page], "\n\nNext: "+row[1]+"\n") {
			t.Errorf("%s does not end with a link to the next page, %s", page, row[1])
		}
	}
}

func TestTheReleaseNotesHaveThePresentRelease(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	release := regexp.MustCompile(`(?m)^VERSION \?= (\S+)$`).FindSubmatch(makefile)
	if release == nil || !strings.Contains(documents(t)["docs/release-notes.md"], "\n## "+string(release[1])+"\n") {
		t.Errorf("docs/release-notes.md has no section for the Makefile's release, %q", release)
	}
}
