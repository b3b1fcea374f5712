package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A type that has grown beyond this does more than one thing. What only serves tests is not the
// product; the fields of the API are what users set.
const (
	mostMethods = 30
	mostFields  = 20
)

func TestTypesOfTheProductStaySmall(t *testing.T) {
	t.Parallel()
	methods, fields := map[string]int{}, map[string]int{}
	for _, dir := range []string{"api", "cmd", "internal"} {
		if err := filepath.WalkDir(filepath.Join(root(t), dir), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			of, err := filepath.Rel(root(t), filepath.Dir(path))
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Recv != nil {
						methods[of+"."+receiver(n.Recv.List[0].Type)]++
					}
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok && dir != "api" {
						fields[of+"."+n.Name.Name] = s.Fields.NumFields()
					}
				}
				return true
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, and at most %d are to be read together", name, n, mostMethods)
		}
	}
	for name, n := range fields {
		if n > mostFields {
			t.Errorf("%s has %d fields, and at most %d are to be read together", name, n, mostFields)
		}
	}
	if len(methods) < 100 || len(fields) < 100 {
		t.Errorf("only %d types with methods and %d structs were found", len(methods), len(fields))
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
