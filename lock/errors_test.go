package lock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of errors in the package's documentation has every exported error, and no other.
func TestEveryErrorIsInTheTable(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n// # Errors\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\npackage lock\n")
	listed := make(map[string]bool)
	for _, name := range regexp.MustCompile(`\bErr[A-Z]\w*|\b[A-Z]\w*Error\b`).FindAllString(table, -1) {
		listed[name] = true
	}
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	declared := make(map[string]bool)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			names, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range names.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if strings.HasPrefix(name.Name, "Err") {
							declared[name.Name] = true
						}
					}
				case *ast.TypeSpec:
					if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
						declared[s.Name.Name] = true
					}
				}
			}
		}
	}
	require.Equal(t, declared, listed)
}
