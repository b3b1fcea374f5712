package powershell

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// World is the effect of a script on a machine.
type World struct {
	// Files are the written files, by lower-case path.
	Files map[string]string
	// Ports are open for TCP from outside, sorted.
	Ports []int
}

// Run returns the effect of a script with these environment variables on a machine with these files. If the script has
// a syntax error, Run returns an error, because PowerShell then runs nothing of the script.
func Run(script string, environment, files map[string]string) (World, error) {
	body, err := parse(script)
	if err != nil {
		return World{}, fmt.Errorf("reading the script: %w", err)
	}
	r := &runner{variables: map[string]value{}, functions: map[string]function{},
		world: World{Files: map[string]string{}}}
	for path, content := range files {
		r.write(path, content)
	}
	for name, v := range environment {
		r.variables["env:"+strings.ToLower(name)] = value{text: v}
	}
	if err = r.run(body); err != nil {
		return World{}, err
	}
	slices.Sort(r.world.Ports)
	r.world.Ports = slices.Compact(r.world.Ports)
	return r.world, nil
}

// value is the value of an expression. It always has a text. Some values also have a list, a block or a table.
type value struct {
	text  string
	list  []string
	block []statement
	table map[string]value
}

type function struct {
	parameters []string
	body       []statement
}

// runner is one run of a script.
type runner struct {
	variables map[string]value
	functions map[string]function
	world     World
	steps     int
}

// longest is the maximum number of executed statements. Normal scripts have about a hundred. Only recursive functions
// exceed the limit.
const longest = 10_000

func (r *runner) run(body []statement) error {
	for _, s := range body {
		if r.steps++; r.steps > longest {
			return fmt.Errorf("the script does not end within %d statements", longest)
		}
		if err := r.statement(s); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) statement(s statement) error {
	switch first := s[0]; {
	case first.is("return", "throw", "exit", "break", "continue"):
		return nil
	case first.is("function") && len(s) > 2:
		r.define(s)
		return nil
	case first.is("if", "foreach", "for", "while", "try", "do"):
		return r.control(s)
	case first.kind == variable && len(s) > 2 && s[1].is("="):
		r.variables[first.text] = r.evaluate(s[2:])
		return nil
	case first.kind == variable && len(s) > 3 && s[1].is("+") && s[2].is("="):
		r.variables[first.text] = r.variables[first.text].plus(r.evaluate(s[3:]))
		return nil
	}
	for _, part := range s.split("|") {
		if err := r.command(part); err != nil {
			return err
		}
	}
	return nil
}

// define stores a function: function Name([type] $First, …) { … }.
func (r *runner) define(s statement) {
	f := function{}
	for _, n := range s[2:] {
		switch {
		case n.isGroup() && len(n.body) > 0:
			for _, p := range n.body[0] {
				if p.kind == variable {
					f.parameters = append(f.parameters, p.text)
				}
			}
		case n.isBlock():
			f.body = n.body
		}
	}
	r.functions[strings.ToLower(s[1].text)] = f
}

// control runs the blocks of if, loops and try. It skips the blocks of catch.
func (r *runner) control(s statement) error {
	caught := false
	for _, n := range s {
		if n.kind == word {
			caught = n.is("catch")
		}
		if n.isBlock() && !caught {
			if err := r.run(n.body); err != nil {
				return err
			}
		}
	}
	return nil
}

// The method command runs one command of a pipeline: a method, a block, a function of the script, or a known command.
func (r *runner) command(s statement) error {
	if len(s) == 0 {
		return nil
	}
	if s[0].is("&", ".") && len(s) > 1 {
		return r.run(r.one(s[1]).block)
	}
	for i, n := range s[:len(s)-1] {
		if n.kind == word && s[i+1].isGroup() && !s[i+1].spaced && r.method(n.text, s[i+1]) {
			return nil
		}
	}
	if s[0].kind != word {
		return nil
	}
	named, positional := r.arguments(s[1:])
	if f, ok := r.functions[strings.ToLower(s[0].text)]; ok {
		return r.call(f, named, positional)
	}
	r.known(strings.ToLower(s[0].text), named, positional)
	return nil
}

func (r *runner) call(f function, named map[string]value, positional []value) error {
	before := maps.Clone(r.variables)
	for i, name := range f.parameters {
		switch v, ok := named[name]; {
		case ok:
			r.variables[name] = v
		case i < len(positional):
			r.variables[name] = positional[i]
		default:
			r.variables[name] = value{}
		}
	}
	err := r.run(f.body)
	for _, name := range f.parameters {
		r.variables[name] = before[name]
	}
	return err
}

// arguments returns the arguments of a command, by lower-case parameter name and by position. A table with an @ before
// its name provides several named arguments.
func (r *runner) arguments(s statement) (named map[string]value, positional []value) {
	named = map[string]value{}
	for i := 0; i < len(s); i++ {
		switch n := s[i]; {
		case n.kind == word && strings.HasPrefix(n.text, "@"):
			maps.Copy(named, r.variables[strings.ToLower(n.text[1:])].table)
		case n.kind == word && len(n.text) > 1 && n.text[0] == '-' && (n.text[1] < '0' || n.text[1] > '9'):
			name := strings.ToLower(n.text[1:])
			if i+1 < len(s) && (s[i+1].kind != word || !strings.HasPrefix(s[i+1].text, "-")) {
				i++
				named[name] = r.one(s[i])
			} else {
				named[name] = value{text: "true"}
			}
		case n.is(","):
		default:
			positional = append(positional, r.one(n))
		}
	}
	return named, positional
}

// The function first returns the first existing named argument. If there is no such argument, it returns the positional
// argument with the index `at`.
func first(named map[string]value, positional []value, at int, names ...string) string {
	for _, name := range names {
		if v, ok := named[name]; ok {
			return v.text
		}
	}
	if at < len(positional) {
		return positional[at].text
	}
	return ""
}

// The method known runs the commands that have an effect on a machine.
func (r *runner) known(name string, named map[string]value, positional []value) {
	target := first(named, positional, 0, "literalpath", "path", "filepath")
	switch name {
	case "set-content", "out-file":
		r.write(target, first(named, positional, 1, "value", "inputobject")+"\r\n")
	case "add-content":
		r.write(target, r.world.Files[key(target)]+first(named, positional, 1, "value")+"\r\n")
	case "move-item":
		r.move(target, first(named, positional, 1, "destination"))
	case "copy-item":
		r.write(first(named, positional, 1, "destination"), r.world.Files[key(target)])
	case "remove-item":
		maps.DeleteFunc(r.world.Files, func(file, _ string) bool { return matches(key(target), file) })
	case "new-netfirewallrule":
		r.open(named)
	}
}

// If a firewall rule allows inbound TCP, the method open adds the rule's ports to the open ports.
func (r *runner) open(rule map[string]value) {
	is := func(name, want string) bool { return strings.EqualFold(rule[name].text, want) }
	if !is("direction", "inbound") || !is("action", "allow") || !is("protocol", "tcp") {
		return
	}
	for port := range strings.SplitSeq(rule["localport"].text, ",") {
		if number, err := strconv.Atoi(strings.TrimSpace(port)); err == nil {
			r.world.Ports = append(r.world.Ports, number)
		}
	}
}

// method runs a static method of System.IO.File. If the method has no effect on files, it returns false.
func (r *runner) method(name string, arguments node) bool {
	_, method, _ := strings.Cut(name, "::")
	given := []string{}
	if len(arguments.body) > 0 {
		for _, part := range arguments.body[0].split(",") {
			given = append(given, r.evaluate(part).text)
		}
	}
	if len(given) < 2 {
		return false
	}
	switch strings.ToLower(method) {
	case "writealltext", "writealllines":
		r.write(given[0], given[1])
	case "appendalltext":
		r.write(given[0], r.world.Files[key(given[0])]+given[1])
	case "move", "replace":
		r.move(given[0], given[1])
	default:
		return false
	}
	return true
}

func (r *runner) write(path, content string) { r.world.Files[key(path)] = content }

func (r *runner) move(from, to string) {
	if content, ok := r.world.Files[key(from)]; ok {
		delete(r.world.Files, key(from))
		r.world.Files[key(to)] = content
	}
}

func key(path string) string { return strings.ToLower(strings.ReplaceAll(path, "/", `\`)) }

// The function matches compares a path with a pattern. The last element of the pattern can contain wildcards.
func matches(pattern, file string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, `\`, "/"), strings.ReplaceAll(file, `\`, "/"))
	return err == nil && ok
}
