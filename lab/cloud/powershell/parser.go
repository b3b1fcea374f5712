package powershell

import "strings"

// node is a token, or a bracket with what is in it.
type node struct {
	token
	body []statement
}

// statement is what ends at a line, a semicolon or a brace. There are no empty ones.
type statement []node

// parse reads a script. Its error is one of syntax.
func parse(script string) ([]statement, error) {
	tokens, err := tokenize(script)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	return p.body(), nil
}

type parser struct{ tokens []token }

// body reads up to the closing bracket, or to the end. Brackets are known to pair.
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

// isGroup says whether a node is an expression in parentheses.
func (n node) isGroup() bool { return n.kind == opening && strings.HasSuffix(n.text, "(") }

// is compares a word, whose letter case never matters.
func (n node) is(words ...string) bool {
	for _, w := range words {
		if n.kind == word && strings.EqualFold(n.text, w) {
			return true
		}
	}
	return false
}

// split at a word that separates.
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
