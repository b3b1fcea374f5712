package powershell

import "strings"

// node is a token, or a bracket with its content.
type node struct {
	token
	body []statement
}

// statement ends at a line end, a semicolon or a brace. It is never empty.
type statement []node

// parse parses a script. It returns an error for a syntax error.
func parse(script string) ([]statement, error) {
	tokens, err := tokenize(script)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	return p.body(), nil
}

type parser struct{ tokens []token }

// body parses up to the closing bracket, or to the end. Brackets are already known to be balanced.
func (p *parser) body() (all []statement) {
	current := statement{}
	finish := func() {
		if len(current) > 0 {
			all = append(all, current)
		}
		current = statement{}
	}
	for len(p.tokens) > 0 {
		t := p.tokens[0]
		p.tokens = p.tokens[1:]
		switch t.kind {
		case closing:
			finish()
			return all
		case end:
			finish()
		case opening:
			current = append(current, node{token: t, body: p.body()})
		default:
			current = append(current, node{token: t})
		}
	}
	finish()
	return all
}

func (n node) isBlock() bool { return n.kind == opening && n.text == "{" }

func (n node) isTable() bool { return n.kind == opening && n.text == "@{" }

// isGroup reports whether a node is an expression in parentheses.
func (n node) isGroup() bool { return n.kind == opening && strings.HasSuffix(n.text, "(") }

// The method `is` reports whether a node is one of the words, in upper or lower case.
func (n node) is(words ...string) bool {
	for _, w := range words {
		if n.kind == word && strings.EqualFold(n.text, w) {
			return true
		}
	}
	return false
}

// split splits a statement at a separator.
func (s statement) split(separator string) (parts []statement) {
	current := statement{}
	for _, n := range s {
		if n.is(separator) {
			parts = append(parts, current)
			current = statement{}
			continue
		}
		current = append(current, n)
	}
	return append(parts, current)
}
