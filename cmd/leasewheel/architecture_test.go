package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
// docs/reliability.md. A name in backquotes is looked up in the last file named before it in
// the same row or paragraph.
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
	files := 0
	for _, unit := range units {
		names := namesInCode{t: t, root: root}
		for _, match := range quoted.FindAllStringSubmatch(unit, -1) {
			names.check(match[1])
		}
		files += names.files
	}
	assert.Greater(t, files, 100, "the page is not read as it should be")
}

// The end of a package's doc.go names where its changes go: files, functions, fields and tests
// exist, and every planted bug is named in one of them, by its number or its whole name.
func TestPlacesOfChanges(t *testing.T) {
	root := moduleDir(t)
	files, bugs := 0, make(map[string]bool)
	for path, section := range placesOfChanges(t, root) {
		for place := range strings.SplitSeq(section, "\n\n") {
			where, planted, _ := strings.Cut(place, "Planted: ")
			names := namesInCode{t: t, root: root, folder: filepath.Dir(path)}
			for name := range strings.FieldsSeq(where) {
				names.check(strings.TrimPrefix(strings.TrimRight(name, ".,;:"), "("))
			}
			assert.Positive(t, names.files, "%s names no file for: %s", path, place)
			files += names.files
			for _, bug := range strings.FieldsFunc(planted, func(r rune) bool { return strings.ContainsRune(" ,.\n", r) }) {
				pattern := bug + ".patch"
				if !strings.Contains(bug, "-") {
					pattern = bug + "-*.patch"
				}
				patches, err := filepath.Glob(filepath.Join(root, "lock", "testdata", "planted", pattern))
				require.NoError(t, err)
				if assert.Len(t, patches, 1, "the planted bugs that %s names as %s", path, bug) {
					bugs[patches[0]] = true
				}
			}
		}
	}
	patches, err := filepath.Glob(filepath.Join(root, "lock", "testdata", "planted", "*.patch"))
	require.NoError(t, err)
	assert.ElementsMatch(t, patches, slices.Collect(maps.Keys(bugs)), "the planted bugs that are named")
	assert.Greater(t, files, 200, "the files are not read as they should be")
}

// placesOfChanges returns the text after the first paragraph of "Where a change goes", without
// the comment marks, of each doc.go that has it.
func placesOfChanges(t *testing.T, root string) map[string]string {
	t.Helper()
	sections := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.Name() != "doc.go":
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, section, ok := strings.Cut(string(source), "\n// Where a change goes"); ok {
			text := regexp.MustCompile(`(?m)^// ?`).ReplaceAllString(section, "")
			_, sections[path], _ = strings.Cut(strings.TrimSpace(text), "\n\n")
		}
		return nil
	})
	require.NoError(t, err)
	return sections
}

// namesInCode checks names of files, and names of functions and fields in the last of these.
type namesInCode struct {
	t            *testing.T
	root, folder string // a file without a folder, or in internal, is in folder, if that is set

	files    int    // how many were named
	file     string // the last one
	declared map[string]bool
}

var (
	fileName  = regexp.MustCompile(`^[\w.-]+\.(go|lua|md|json|yaml)$`)
	fieldName = regexp.MustCompile(`^\w+\.\w+$`)
)

func (n *namesInCode) check(name string) {
	n.t.Helper()
	name, call := strings.CutSuffix(name, "()")
	switch {
	case n.folder != "" && strings.HasPrefix(name, "internal/"):
		n.open(filepath.Join(n.folder, filepath.FromSlash(name)))
	case strings.Contains(name, "/"):
		n.open(filepath.Join(n.root, filepath.FromSlash(strings.Trim(name, "()"))))
	case n.folder != "" && strings.HasSuffix(name, ".md"):
		n.open(filepath.Join(n.root, name))
	case n.folder != "" && fileName.MatchString(name):
		n.open(filepath.Join(n.folder, name))
	case call || n.file != "" && fieldName.MatchString(name):
		if n.declared == nil {
			n.declared = declarations(n.t, n.file)
		}
		assert.True(n.t, n.declared[name], "%q does not declare %s", n.file, name)
	}
}

func (n *namesInCode) open(path string) {
	n.t.Helper()
	n.file, n.declared, n.files = path, nil, n.files+1
	_, err := os.Stat(path)
	assert.NoError(n.t, err)
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
