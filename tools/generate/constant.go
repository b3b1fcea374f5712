package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// constant is a string constant of the source, with its comment.
type constant struct {
	name, value, comment string
	// kind is the name of its type, or empty.
	kind string
}

// constants lists the string constants of a package's folder in the order of its files. It omits tests.
func constants(dir string) ([]constant, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the source: %w", err)
	}
	var all []constant
	known := map[string]string{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry.Name()), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing the source: %w", err)
		}
		for _, declared := range file.Decls {
			group, ok := declared.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				for _, c := range constantsOf(spec.(*ast.ValueSpec), known) { // constants have only ValueSpecs
					known[c.name] = c.value
					all = append(all, c)
				}
			}
		}
	}
	return all, nil
}

// constantsOf lists the constants of one line. known maps the names of earlier constants to their values.
func constantsOf(spec *ast.ValueSpec, known map[string]string) []constant {
	var all []constant
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			break
		}
		value, ok := evaluate(spec.Values[i], known)
		if !ok {
			continue
		}
		c := constant{name: name.Name, value: value, comment: spec.Doc.Text()}
		if c.comment == "" {
			c.comment = spec.Comment.Text()
		}
		if kind, ok := spec.Type.(*ast.Ident); ok {
			c.kind = kind.Name
		}
		all = append(all, c)
	}
	return all
}

// evaluate returns the value of a string literal, of a known constant, or of a sum of both.
func evaluate(expression ast.Expr, known map[string]string) (value string, ok bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		value, err := strconv.Unquote(e.Value)
		return value, err == nil
	case *ast.Ident:
		value, ok = known[e.Name]
		return value, ok
	case *ast.BinaryExpr:
		left, leftOK := evaluate(e.X, known)
		right, rightOK := evaluate(e.Y, known)
		return left + right, e.Op == token.ADD && leftOK && rightOK
	}
	return "", false
}
