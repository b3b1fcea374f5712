package powershell

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// kind is the kind of a token.
type kind int

const (
	word     kind = iota // a command, a parameter, a bare argument, an operator
	text                 // a single-quoted string or here-string, which is taken literally
	template             // a double-quoted string, whose variables are replaced
	variable             // $name, without the dollar
	opening              // an opening bracket with the characters before it: ( { [ @( @{ $(
	closing              // ) } ]
	end                  // the end of a statement
)

// token is a token of a script.
type token struct {
	kind kind
	text string
	line int
	// spaced means that the token follows white space.
	spaced bool
}

// tokenize splits a script into tokens. Like PowerShell, it refuses a string, a comment or a bracket that has no end.
func tokenize(script string) ([]token, error) {
	l := &lexer{rest: []rune(strings.ReplaceAll(script, "\r\n", "\n")), line: 1}
	for len(l.rest) > 0 {
		if err := l.next(); err != nil {
			return nil, fmt.Errorf("line %d: %w", l.line, err)
		}
	}
	if n := len(l.open); n > 0 {
		return nil, fmt.Errorf("line %d: %q is never closed", l.open[n-1].line, l.open[n-1].text)
	}
	l.add(end, "")
	return l.tokens, nil
}

type lexer struct {
	rest   []rune
	line   int
	spaced bool
	tokens []token
	open   []token
}

func (l *lexer) add(kind kind, text string) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: l.line, spaced: l.spaced})
	l.spaced = false
}

// The method starts reports whether the rest of the script starts with any of the prefixes.
func (l *lexer) starts(prefixes ...string) bool {
	for _, prefix := range prefixes {
		if p := []rune(prefix); len(l.rest) >= len(p) && string(l.rest[:len(p)]) == prefix {
			return true
		}
	}
	return false
}

// take consumes n runes.
func (l *lexer) take(n int) string {
	taken := string(l.rest[:n])
	l.line += strings.Count(taken, "\n")
	l.rest = l.rest[n:]
	return taken
}

// `until` consumes everything up to and including an end marker. If there is no end marker, it returns false.
func (l *lexer) until(end string) (string, bool) {
	before, _, found := strings.Cut(string(l.rest), end)
	if !found {
		return "", false
	}
	l.take(len([]rune(before)) + len([]rune(end)))
	return before, true
}

func (l *lexer) next() error {
	switch r := l.rest[0]; {
	case l.starts("\n", ";"):
		l.take(1)
		l.separate(r)
	case l.starts("`\n"):
		l.take(2)
		l.spaced = true
	case unicode.IsSpace(r):
		l.take(1)
		l.spaced = true
	case l.starts("<#", "#"):
		return l.comment()
	case l.starts("@'\n", "@\"\n"):
		return l.hereString()
	case r == '\'':
		return l.text()
	case r == '"':
		return l.template()
	case l.starts("(", "{", "["):
		l.opened(1)
	case l.starts("@(", "@{", "$("):
		l.opened(2)
	case l.starts(")", "}", "]"):
		return l.closed()
	case r == '$' && len(l.rest) > 1:
		l.variable()
	case strings.ContainsRune("|,=&+", r):
		l.add(word, l.take(1))
	default:
		l.word()
	}
	return nil
}

// separate ends a statement, except inside parentheses and after a token that requires a continuation.
func (l *lexer) separate(r rune) {
	l.spaced = true
	if n := len(l.open); n > 0 && !strings.HasSuffix(l.open[n-1].text, "{") {
		return
	}
	if n := len(l.tokens); r == '\n' && n > 0 && l.tokens[n-1].kind == word &&
		strings.Contains("|,=+", l.tokens[n-1].text) {
		return
	}
	l.add(end, "")
}

func (l *lexer) comment() error {
	if l.starts("<#") {
		if _, ok := l.until("#>"); !ok {
			return errors.New("a comment is never closed")
		}
		return nil
	}
	for len(l.rest) > 0 && l.rest[0] != '\n' {
		l.take(1)
	}
	return nil
}

func (l *lexer) opened(n int) {
	t := token{text: l.take(n), line: l.line}
	l.open = append(l.open, t)
	l.add(opening, t.text)
}

func (l *lexer) closed() error {
	t := l.take(1)
	pairs := map[string]string{")": "(", "}": "{", "]": "["}
	n := len(l.open)
	if n == 0 || !strings.HasSuffix(l.open[n-1].text, pairs[t]) {
		return fmt.Errorf("%q has no opening bracket", t)
	}
	l.open = l.open[:n-1]
	l.add(closing, t)
	return nil
}

// hereString parses a multi-line string.
func (l *lexer) hereString() error {
	what, end := text, "\n'@"
	if l.starts("@\"") {
		what, end = template, "\n\"@"
	}
	l.take(3)
	content, ok := l.until(end)
	if !ok {
		return errors.New("a here-string is never closed")
	}
	l.add(what, content)
	return nil
}

func (l *lexer) text() error {
	l.take(1)
	var b strings.Builder
	for {
		part, ok := l.until("'")
		if !ok {
			return errors.New("a string is never closed")
		}
		b.WriteString(part)
		if !l.starts("'") {
			l.add(text, b.String())
			return nil
		}
		b.WriteString(l.take(1))
	}
}

// template reads a double-quoted string. Escapes and variables remain unchanged: see runner.fill.
func (l *lexer) template() error {
	l.take(1)
	var b strings.Builder
	for len(l.rest) > 0 {
		switch {
		case l.rest[0] == '`' && len(l.rest) > 1:
			b.WriteString(l.take(2))
		case l.starts(`""`):
			l.take(2)
			b.WriteString("`\"")
		case l.rest[0] == '"':
			l.take(1)
			l.add(template, b.String())
			return nil
		default:
			b.WriteString(l.take(1))
		}
	}
	return errors.New("a string is never closed")
}

func (l *lexer) variable() {
	l.take(1)
	if l.starts("{") {
		if name, ok := l.until("}"); ok {
			l.add(variable, variableName(name[1:]))
			return
		}
	}
	l.add(variable, variableName(l.take(nameLength(l.rest))))
}

// variableName drops the scope, because such small scripts need only one.
func variableName(name string) string {
	name = strings.ToLower(name)
	for _, scope := range []string{"script:", "global:", "local:"} {
		name = strings.TrimPrefix(name, scope)
	}
	return name
}

// nameLength returns how many runes belong to the name of a variable.
func nameLength(runes []rune) int {
	n := 0
	for n < len(runes) {
		scope := runes[n] == ':' && n+1 < len(runes) && unicode.IsLetter(runes[n+1])
		if !unicode.IsLetter(runes[n]) && !unicode.IsDigit(runes[n]) && runes[n] != '_' && !scope {
			break
		}
		n++
	}
	return max(n, min(1, len(runes))) // $? and $$
}

func (l *lexer) word() {
	n := 0
	for n < len(l.rest) && !unicode.IsSpace(l.rest[n]) && !strings.ContainsRune("(){}[];|,='\"&", l.rest[n]) {
		n++
	}
	l.add(word, l.take(max(n, 1)))
}
