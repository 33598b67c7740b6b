package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Files, functions and fields exist that docs/architecture.md names, and the table of queues in
// docs/reliability.md. The former names every planted bug. A name in backquotes is looked up in the last file named before it in the same row
// or paragraph.
func TestArchitectureNamesExist(t *testing.T) {
	root := moduleDir(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)
	reliability, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	require.NoError(t, err)
	queues := regexp.MustCompile(`(?s)\n## What is queued.*?\n## `).Find(reliability)
	require.NotEmpty(t, queues)
	prose := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(text)+string(queues), "")
	units := regexp.MustCompile(`\n\n|\n\| |\n\d+\. `).Split(prose, -1)
	quoted := regexp.MustCompile("`([^`\\s]+)`")
	planted := regexp.MustCompile(`^\d{2,3}-`)
	member := regexp.MustCompile(`^\w+\.\w+$`)
	files, bugs := 0, make(map[string]bool)
	for _, unit := range units {
		var file string
		var declared map[string]bool
		for _, match := range quoted.FindAllStringSubmatch(unit, -1) {
			name, call := strings.CutSuffix(match[1], "()")
			switch {
			case planted.MatchString(name):
				bugs[filepath.Join(root, "lock", "testdata", "planted", name+".patch")] = true
			case strings.Contains(name, "/"):
				file, declared, files = name, nil, files+1
				_, err := os.Stat(filepath.Join(root, filepath.FromSlash(file)))
				assert.NoError(t, err)
			case call || file != "" && member.MatchString(name):
				if declared == nil {
					declared = declarations(t, filepath.Join(root, filepath.FromSlash(file)))
				}
				assert.True(t, declared[name], "%q does not declare %s", file, name)
			}
		}
	}
	patches, err := filepath.Glob(filepath.Join(root, "lock", "testdata", "planted", "*.patch"))
	require.NoError(t, err)
	assert.ElementsMatch(t, patches, slices.Collect(maps.Keys(bugs)), "the planted bugs that the page names")
	assert.Greater(t, files, 100, "the page is not read as it should be")
}

// declarations returns the functions of a Go or Lua file, and for Go the methods and
// fields as "Type.name".
func declarations(t *testing.T, path string) map[string]bool {
	t.Helper()
	declared := make(map[string]bool)
	source, err := os.ReadFile(path)
	if !assert.NoError(t, err) {
		return declared
	}
	if filepath.Ext(path) == ".lua" {
		for _, match := range regexp.MustCompile(`function (\w+)\(`).FindAllSubmatch(source, -1) {
			declared[string(match[1])] = true
		}
		return declared
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			declared[receiver(n)+n.Name.Name] = true
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						declared[n.Name.Name+"."+name.Name] = true
					}
				}
			}
		}
		return true
	})
	return declared
}

// receiver returns the type of a method, with a dot behind it; "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}
