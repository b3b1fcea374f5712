package powershell

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// evaluate returns the value of an expression: its texts, joined. Unknown parts add nothing.
func (r *runner) evaluate(s statement) value {
	if len(s) == 1 {
		return r.one(s[0])
	}
	if len(s) > 0 && s[0].is("Join-Path") {
		named, positional := r.arguments(s[1:])
		return value{text: strings.TrimSuffix(first(named, positional, 0, "path"), `\`) + `\` +
			strings.TrimPrefix(first(named, positional, 1, "childpath"), `\`)}
	}
	var left value
	for i := 0; i < len(s); i++ {
		n := s[i]
		switch {
		case n.kind == word && i+1 < len(s) && s[i+1].isGroup() && !s[i+1].spaced:
			i++
			left.text += r.function(n.text, s[i])
		case n.is("::NewLine"):
			left.text += "\r\n"
		case n.kind == word && strings.HasPrefix(n.text, "-"):
			right := operand(s[i+1:])
			if left = left.operate(strings.ToLower(n.text), r.evaluate(right).text); left.text == "" {
				return left
			}
			i += len(right)
		case n.kind == word, n.kind == opening && n.text == "[":
		default:
			left = left.plus(r.one(n))
		}
	}
	return left
}

// operand returns the operand of an operator: everything up to the next operator.
func operand(s statement) statement {
	end := slices.IndexFunc(s, func(n node) bool { return n.kind == word && strings.HasPrefix(n.text, "-") })
	if end < 0 {
		return s
	}
	return s[:end]
}

// plus adds a value to v. If v is a list, plus appends the added elements. Otherwise, it appends the added text.
func (v value) plus(added value) value {
	switch {
	case v.list == nil && v.text == "":
		return added
	case v.list == nil:
		return value{text: v.text + added.text}
	case added.list == nil:
		return listOf(append(slices.Clone(v.list), added.text))
	}
	return listOf(append(slices.Clone(v.list), added.list...))
}

// listOf returns a list. Its text is the text of its elements.
func listOf(elements []string) value { return value{text: strings.Join(elements, ""), list: elements} }

// operate applies an operator to a value. For unsupported operators, it returns an empty value.
func (v value) operate(operator, right string) value {
	switch operator {
	case "-split":
		pattern, err := regexp.Compile(right)
		if err != nil {
			return value{}
		}
		return listOf(pattern.Split(v.text, -1))
	case "-join":
		return value{text: strings.Join(v.list, right)}
	case "-cne":
		return listOf(slices.DeleteFunc(slices.Clone(v.list), func(e string) bool { return e == right }))
	}
	return value{}
}

// The method `one` returns the value of a single node.
func (r *runner) one(n node) value {
	switch {
	case n.kind == variable:
		return r.variables[n.text]
	case n.kind == template:
		return value{text: r.fill(n.text)}
	case n.isBlock():
		return value{block: n.body}
	case n.isTable():
		return value{table: r.table(n.body)}
	case n.isGroup() && len(n.body) > 0 && n.text == "@(":
		elements := value{list: []string{}}
		for _, part := range n.body[0].split(",") {
			elements = elements.plus(r.evaluate(part))
		}
		return elements
	case n.isGroup() && len(n.body) > 0:
		return r.evaluate(n.body[0])
	case n.kind == opening:
		return value{}
	}
	return value{text: n.text}
}

func (r *runner) table(entries []statement) map[string]value {
	all := map[string]value{}
	for _, e := range entries {
		if len(e) > 2 && e[1].is("=") {
			all[strings.ToLower(e[0].text)] = r.evaluate(e[2:])
		}
	}
	return all
}

// The method `function` returns the value of a method call.
func (r *runner) function(name string, arguments node) string {
	given := r.one(arguments).text
	at := max(strings.LastIndex(name, "."), strings.LastIndex(name, ":"))
	switch strings.ToLower(name[at+1:]) {
	case "frombase64string":
		decoded, err := base64.StdEncoding.DecodeString(given)
		if err != nil {
			return ""
		}
		return string(decoded)
	case "getstring", "getbytes":
		return given
	case "readalltext":
		return r.world.Files[key(given)]
	}
	return ""
}

// fill replaces escapes and variables in a string.
func (r *runner) fill(template string) string {
	escapes := map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', '0': 0}
	var b strings.Builder
	for runes := []rune(template); len(runes) > 0; {
		switch {
		case runes[0] == '`' && len(runes) > 1:
			c, ok := escapes[runes[1]]
			if !ok {
				c = runes[1]
			}
			b.WriteRune(c)
			runes = runes[2:]
		case runes[0] == '$' && len(runes) > 1 && runes[1] != '(':
			var name string
			name, runes = cutName(runes[1:])
			b.WriteString(r.variables[variableName(name)].text)
		default:
			b.WriteRune(runes[0])
			runes = runes[1:]
		}
	}
	return b.String()
}

// cutName cuts off the name of a variable, which can be in braces.
func cutName(runes []rune) (name string, rest []rune) {
	if end := slices.Index(runes, '}'); end > 0 && runes[0] == '{' {
		return string(runes[1:end]), runes[end+1:]
	}
	n := nameLength(runes)
	return string(runes[:n]), runes[n:]
}
