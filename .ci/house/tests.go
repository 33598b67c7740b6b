package main

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// kind is what decides the tests of a file.
type kind int

const (
	virtual kind = iota // logic, in virtual time
	servers             // logic, without it: on servers, mostly
	real
	kinds
)

// tested counts the tests of a package, and the calls of time.Sleep in their files, by kind.
type tested struct{ tests, sleeps [kinds]int }

// printTests prints a row for each package below root that has tests.
func printTests(w io.Writer, root string) error {
	folders, err := folders(root)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "package\ttests\tvirtual\tservers\treal\tsleeps\tvirtual\tservers\treal\t")
	var sum tested
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		if err != nil {
			return err
		}
		var all tested
		for _, path := range paths {
			if err := all.read(path); err != nil {
				return err
			}
		}
		for k := range kinds {
			sum.tests[k] += all.tests[k]
			sum.sleeps[k] += all.sleeps[k]
		}
		if len(paths) > 0 {
			all.print(t, folder)
		}
	}
	sum.print(t, "all")
	return t.Flush()
}

// read counts the tests and sleeps of a file.
func (c *tested) read(path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	k := kindOf(file)
	for _, declared := range file.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
			c.tests[k]++
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
			if of, ok := s.X.(*ast.Ident); ok && of.Name == "time" {
				c.sleeps[k]++
			}
		}
		return true
	})
	return nil
}

// kindOf returns the kind of a file: its build tag is "real", or it imports testing/synctest.
func kindOf(file *ast.File) kind {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if rule, err := constraint.Parse(comment.Text); err == nil && !rule.Eval(func(tag string) bool { return tag != "real" }) {
				return real
			}
		}
	}
	for _, imported := range file.Imports {
		if imported.Path.Value == `"testing/synctest"` {
			return virtual
		}
	}
	return servers
}

func (c *tested) print(w io.Writer, name string) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name,
		c.tests[virtual]+c.tests[servers]+c.tests[real], c.tests[virtual], c.tests[servers], c.tests[real],
		c.sleeps[virtual]+c.sleeps[servers]+c.sleeps[real], c.sleeps[virtual], c.sleeps[servers], c.sleeps[real])
}
