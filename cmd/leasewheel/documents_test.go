package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exported is what a package exports: its names, and under "Type.Name" the methods and
// fields of its types.
type exported map[string]bool

// exportedBy parses a package's files.
func exportedBy(t *testing.T, folder string) exported {
	t.Helper()
	names := exported{}
	files, err := filepath.Glob(filepath.Join(moduleDir(t), folder, "*.go"))
	require.NoError(t, err)
	embedded := map[string][]string{} // by the type that embeds them
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			names.add(declaration)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				embedded[spec.Name.Name] = embeddedIn(spec)
			}
			return true
		})
	}
	for name := range embedded {
		names.promote(name, name, embedded)
	}
	require.NotEmpty(t, names, folder)
	return names
}

// embeddedIn returns the types of its own package that a struct embeds by value.
func embeddedIn(s *ast.TypeSpec) (types []string) {
	if structure, ok := s.Type.(*ast.StructType); ok {
		for _, field := range structure.Fields.List {
			if named, ok := field.Type.(*ast.Ident); ok && field.Names == nil {
				types = append(types, named.Name)
			}
		}
	}
	return types
}

// promote adds the members of what the type from embeds to those of the type to.
func (e exported) promote(to, from string, embedded map[string][]string) {
	for _, inner := range embedded[from] {
		for name := range maps.Clone(e) {
			if member, ok := strings.CutPrefix(name, inner+"."); ok {
				e[to+"."+member] = true
			}
		}
		e.promote(to, inner, embedded)
	}
}

func (e exported) add(declaration ast.Decl) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			e[d.Name.Name] = true
			return
		}
		receiver := d.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		if named, ok := receiver.(*ast.Ident); ok {
			e[named.Name+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					e[name.Name] = true
				}
			case *ast.TypeSpec:
				e[s.Name.Name] = true
				e.addMembers(s)
			}
		}
	}
}

// addMembers adds the fields of a struct, or the methods of an interface.
func (e exported) addMembers(s *ast.TypeSpec) {
	var members *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		members = t.Fields
	case *ast.InterfaceType:
		members = t.Methods
	default:
		return
	}
	for _, member := range members.List {
		for _, name := range member.Names {
			e[s.Name.Name+"."+name.Name] = true
		}
	}
}

// The names of Go that the guides use exist: `package.Name`, `package.Type.Member`, and
// `Type.Member` of any of our packages.
func TestGuidesNameWhatExists(t *testing.T) {
	t.Parallel()
	packages := map[string]exported{}
	members := exported{}
	for _, folder := range []string{"timeout", "wheel", "renewal", "lock", "lock/driver", "lock/redisstore", "lock/quorum", "lock/delayqueue", "lock/elect", "lock/retry", "lock/observe", "lock/locktest", "lock/lockotel", "lock/lockprom", "lock/pgstore"} {
		names := exportedBy(t, folder)
		packages[filepath.Base(folder)] = names
		for name := range names {
			members[name] = true
		}
	}
	name := regexp.MustCompile(`^(?:([a-z]+)\.)?([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	for guide, names := range map[string]int{"choosing.md": 20, "migrating.md": 20, "operating.md": 20, "metrics.md": 4} {
		text, err := os.ReadFile(filepath.Join(moduleDir(t), "docs", guide))
		require.NoError(t, err)
		checked := 0
		for _, code := range ours(guide, string(text)) {
			parts := name.FindStringSubmatch(code)
			switch {
			case parts == nil || parts[1] == "" && parts[3] == "":
				continue // a command, a file, or a name of another library
			case parts[1] == "":
				assert.True(t, members[parts[2]+"."+parts[3]], "%s: %q", guide, code)
			case packages[parts[1]] == nil:
				assert.Contains(t, []string{"log", "time", "context", "metric"}, parts[1], "%s: %q", guide, code)
				continue
			case parts[3] == "":
				assert.True(t, packages[parts[1]][parts[2]], "%s: %q", guide, code)
			default:
				assert.True(t, packages[parts[1]][parts[2]+"."+parts[3]], "%s: %q", guide, code)
			}
			checked++
		}
		assert.Greater(t, checked, names, guide)
	}
}

// ours returns the code spans of a guide that are about this library: all of them, but in
// the tables of migrating.md only those of the last column.
func ours(guide, text string) []string {
	var spans []string
	for line := range strings.Lines(text) {
		if guide == "migrating.md" {
			line = strings.TrimSuffix(strings.TrimSpace(line), "|")
			if strings.HasPrefix(line, "|") {
				line = line[strings.LastIndex(line, "|"):]
			}
		}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			spans = append(spans, span[1])
		}
	}
	return spans
}

// Each package that can be imported has a row that names its readers.
func TestCompatibilityHasEveryPackage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "docs", "compatibility.md"))
	require.NoError(t, err)
	var modules, packages []string
	for _, pattern := range []string{"go.mod", "lock/*/go.mod", "cmd/leasewheel/*/go.mod"} {
		found, err := filepath.Glob(filepath.Join(moduleDir(t), filepath.FromSlash(pattern)))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		modules = append(modules, found...)
	}
	for _, mod := range modules {
		list := exec.CommandContext(t.Context(), "go", "list", "./...")
		list.Dir = filepath.Dir(mod)
		paths, err := list.Output()
		require.NoError(t, err, mod)
		packages = append(packages, strings.Fields(string(paths))...)
	}
	seen := 0
	for _, path := range packages {
		folder := strings.TrimPrefix(path, module+"/")
		if strings.Contains("/"+folder+"/", "/internal/") {
			continue
		}
		seen++
		assert.Contains(t, string(text), "[`"+folder+"`](../"+folder+")")
	}
	assert.Greater(t, seen, 20)
}
