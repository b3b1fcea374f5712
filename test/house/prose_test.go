package house_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mostStilted is the maximum share of stilted lines for each kind of text, in percent. A single match can be good
// English, so the test limits only their share.
const mostStilted = 2.0

// stilted matches the most common patterns of sentences that sound translated. If a line matches, rewrite the whole
// sentence: subject, verb, object; condition first; repeat the noun.
var stilted = regexp.MustCompile(strings.Join([]string{
	`(?i:\b(some|no|any|every)body\b)`,                          // a user, no host, another program
	`(?i:\b(any more|anew|but for|meanwhile|thereby|beside)\b)`, // no longer, again, except, until then, next to
	`\b(is|are|was|were) to (be|have|get|go|come|wait)\b`,       // must, should, is going to
	`\b(of|by|in|for|to|with|from|at|on) which\b`,               // two sentences
	`\b(one (that|which)|who (asks|waits|wants|has|may))\b`,     // the noun again
	`\b(that|those) of (a|an|the|its|their)\b`,                  // the noun again
	`, too[.,;:)]`,                          // also, as well
	`(^|[.;:] )(What|Who|Of|Whether) [a-z]`, // the actor first
	`\b(says|said|saying) (of|whether|so|nothing)\b|\bis told\b`, // reports, states, receives
}, "|"))

// directive matches comments for tools.
var directive = regexp.MustCompile(`^//(go:| ?\+)`)

// prose counts the lines of one kind of text, and lists the stilted lines with file and line.
type prose struct {
	lines int
	found []string
}

func (p *prose) add(file string, line int, text string) {
	for i, one := range strings.Split(text, "\n") {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		p.lines++
		if match := stilted.FindString(one); match != "" {
			p.found = append(p.found, fmt.Sprintf("%s:%d: %q in %.160s", file, line+i, match, one))
		}
	}
}

// isTooStilted reports whether more lines than mostStilted match.
func (p *prose) isTooStilted() bool {
	return float64(len(p.found)) > mostStilted/100*float64(p.lines)
}

// addGo adds the comments and messages of a Go file. A message is a string of at least four words.
func addGo(name string, source []byte, comments, messages *prose) error {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if !directive.MatchString(comment.Text) {
				comments.add(name, positions.Position(comment.Pos()).Line, strings.TrimLeft(comment.Text, "/* "))
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING || strings.Count(literal.Value, " ") < 3 {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if literal.Value[0] == '"' {
			text = strings.ReplaceAll(text, "\n", " ") // it is one line of the file
		}
		if err == nil {
			messages.add(name, positions.Position(literal.Pos()).Line, text)
		}
		return true
	})
	return nil
}

// TestProseIsPlainEnglish checks that few comments, messages and documents contain stilted sentences.
func TestProseIsPlainEnglish(t *testing.T) {
	t.Parallel()
	comments, messages, pages := &prose{}, &prose{}, &prose{}
	command := exec.CommandContext(t.Context(), "git", "ls-files", "*.go")
	command.Dir = root(t)
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(output)) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root(t), name))
		if os.IsNotExist(err) || bytes.Contains(source[:min(len(source), 400)], []byte("// Code generated")) {
			continue
		}
		if err == nil {
			err = addGo(name, source, comments, messages)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range documents(t) {
		pages.add(name, 1, content)
	}
	for kind, p := range map[string]*prose{"comments": comments, "messages": messages, "documents": pages} {
		t.Logf("%d of %d lines of %s are stilted", len(p.found), p.lines, kind)
		if p.lines == 0 {
			t.Errorf("no %s were read", kind)
		}
		if p.isTooStilted() {
			t.Errorf("%d of %d lines of %s are stilted, but at most %v %% may be:\n%s", len(p.found), p.lines, kind,
				mostStilted, strings.Join(p.found, "\n"))
		}
	}
}

// TestStiltedProseIsFoundWithFileAndLine shows that TestProseIsPlainEnglish can fail.
func TestStiltedProseIsFoundWithFileAndLine(t *testing.T) {
	t.Parallel()
	comments, messages := &prose{}, &prose{}
	source := "package p\n\n// Somebody holds the place of which the status tells.\n// The host keeps its slot.\n" +
		"const a, b = \"it is to be removed first\", \"remove the entry of the host\"\n"
	if err := addGo("p.go", []byte(source), comments, messages); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*prose{comments, messages} {
		if p.lines != 2 || len(p.found) != 1 || !p.isTooStilted() {
			t.Errorf("%+v", p)
		}
	}
	if found := append(comments.found, messages.found...); len(found) != 2 || !strings.HasPrefix(found[0], "p.go:3: ") ||
		!strings.HasPrefix(found[1], "p.go:5: ") {
		t.Errorf("%q", found)
	}
	plain := &prose{}
	for range 100 {
		plain.add("page.md", 1, "The operator drains the node.")
	}
	if plain.add("page.md", 1, "The host is drained, too."); len(plain.found) != 1 || plain.isTooStilted() {
		t.Errorf("one stilted line in a hundred must be accepted: %+v", plain)
	}
}
