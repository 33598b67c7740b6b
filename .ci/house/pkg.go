package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pkg is one package, without its tests.
type pkg struct {
	folder               string
	files                []string
	lines                int
	scripts, scriptLines int
	exported             []string
	// references has the names that the first file uses of the second.
	references map[[2]string][]string
	methods    map[string]*typ // by type
}

// typ is a named type of a package.
type typ struct {
	name    string
	methods int
	files   map[string]bool
}

func keys[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

// load reads the package in a folder. It is nil if there is none.
func load(root, folder string) (*pkg, error) {
	p := &pkg{folder: folder, references: make(map[[2]string][]string), methods: make(map[string]*typ)}
	set := token.NewFileSet()
	var parsed []*ast.File
	entries, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		text := func() ([]byte, error) { return os.ReadFile(filepath.Join(root, folder, name)) }
		switch {
		case strings.HasSuffix(name, ".lua"):
			script, err := text()
			if err != nil {
				return nil, err
			}
			p.scripts++
			p.scriptLines += bytes.Count(script, []byte("\n"))
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			code, err := text()
			if err != nil {
				return nil, err
			}
			file, err := parser.ParseFile(set, name, code, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			if ast.IsGenerated(file) {
				continue
			}
			p.files = append(p.files, name)
			p.lines += bytes.Count(code, []byte("\n"))
			parsed = append(parsed, file)
		}
	}
	if len(parsed) == 0 {
		return nil, nil
	}
	p.examine(set, parsed)
	return p, nil
}

// absent imports nothing: names of other packages are of no interest, and what is wrong
// without them is ignored.
type absent struct{}

func (absent) Import(path string) (*types.Package, error) { return nil, errors.New("absent: " + path) }

// examine finds the references among the files, the exported names and the methods.
func (p *pkg) examine(set *token.FileSet, files []*ast.File) {
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: absent{}, Error: func(error) {}, FakeImportC: true}
	checked, _ := config.Check(p.folder, set, files, info) // it cannot be complete
	fileOf := func(pos token.Pos) string { return set.Position(pos).Filename }
	seen := make(map[string]bool)
	for ident, object := range info.Uses {
		if object.Pkg() != checked || !object.Pos().IsValid() {
			continue
		}
		from, to := fileOf(ident.Pos()), fileOf(object.Pos())
		key := from + "\x00" + to + "\x00" + object.Name()
		if from != to && !seen[key] {
			seen[key] = true
			pair := [2]string{from, to}
			p.references[pair] = append(p.references[pair], object.Name())
		}
	}
	for ident, object := range info.Defs {
		if f, ok := object.(*types.Func); ok {
			if receiver := receiverOf(f); receiver != "" {
				t := p.methods[receiver]
				if t == nil {
					t = &typ{name: receiver, files: make(map[string]bool)}
					p.methods[receiver] = t
				}
				t.methods++
				t.files[fileOf(ident.Pos())] = true
			}
		}
	}
	p.export(checked)
}

// receiverOf returns the name of a method's receiver, or "" for a function or a method of an
// interface.
func receiverOf(f *types.Func) string {
	receiver := f.Signature().Recv()
	if receiver == nil {
		return ""
	}
	t := receiver.Type()
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := t.(*types.Named)
	if !ok || types.IsInterface(named) {
		return ""
	}
	return named.Obj().Name()
}

// export lists the exported names.
func (p *pkg) export(checked *types.Package) {
	for _, name := range checked.Scope().Names() {
		object := checked.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		p.exported = append(p.exported, name)
		of, ok := object.(*types.TypeName)
		if !ok {
			continue
		}
		named, ok := of.Type().(*types.Named)
		if !ok || of.IsAlias() {
			continue
		}
		for method := range named.Methods() {
			if method.Exported() {
				p.exported = append(p.exported, name+"."+method.Name())
			}
		}
		switch under := named.Underlying().(type) {
		case *types.Struct:
			for field := range under.Fields() {
				if field.Exported() {
					p.exported = append(p.exported, name+"."+field.Name())
				}
			}
		case *types.Interface:
			for method := range under.ExplicitMethods() {
				p.exported = append(p.exported, name+"."+method.Name())
			}
		}
	}
}

// largest returns the type with the most methods.
func (p *pkg) largest() *typ {
	most := &typ{name: "-"}
	for _, name := range slices.Sorted(keys(p.methods)) {
		if t := p.methods[name]; t.methods > most.methods {
			most = t
		}
	}
	return most
}

// describe prints the types and the climbing references of a package.
func (p *pkg) describe(w io.Writer) {
	fmt.Fprintf(w, "%s: order of use: %s\n\n", p.folder, strings.Join(p.order(), " "))
	for _, pair := range p.climbing() {
		fmt.Fprintf(w, "%s climbs to %s: %s\n", pair[0], pair[1], strings.Join(p.references[pair], " "))
	}
	fmt.Fprintln(w)
	for _, name := range slices.Sorted(keys(p.methods)) {
		t := p.methods[name]
		fmt.Fprintf(w, "%s: %d methods in %d files\n", name, t.methods, len(t.files))
	}
}
