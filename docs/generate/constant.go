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

// constant is a string constant of the source, with what stands above it or beside it.
type constant struct {
	name, value, comment string
	// kind is the name of its type, or empty.
	kind string
}

// constants lists the string constants of a package's folder in the order of its files, without tests.
func constants(dir string) ([]constant, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the source: %w", err)
	}
	var all []constant
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parsing the source: %w", err)
		}
		for _, declared := range file.Decls {
			group, ok := declared.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				all = append(all, constantsOf(spec.(*ast.ValueSpec))...) // a const declaration holds nothing else
			}
		}
	}
	return all, nil
}

// constantsOf lists those of one line.
func constantsOf(spec *ast.ValueSpec) []constant {
	var all []constant
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			break
		}
		literal, ok := spec.Values[i].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			continue // the parser takes no string that can't be unquoted
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
