package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// realTag is the build tag of files whose tests real time decides.
const realTag = "real"

// pkg is a package and those of its tests that real time decides.
type pkg struct {
	ImportPath string
	Dir        string
	Tests      []string // in the order of their files
}

// find returns the packages of the module in folder that match the patterns and have such tests.
func find(folder string, patterns []string) ([]pkg, error) {
	all, err := list(folder, append([]string{"-tags", realTag}, patterns...))
	if err != nil {
		return nil, err
	}
	untagged, err := list(folder, patterns)
	if err != nil {
		return nil, err
	}
	logic := make(map[string]bool) // by path
	for _, l := range untagged {
		for _, file := range l.files() {
			logic[file] = true
		}
	}
	var found []pkg
	for _, l := range all {
		for _, file := range l.files() {
			if logic[file] {
				continue
			}
			tests, err := tests(file)
			if err != nil {
				return nil, err
			}
			l.Tests = append(l.Tests, tests...)
		}
		if len(l.Tests) > 0 {
			found = append(found, l.pkg)
		}
	}
	return found, nil
}

// listed is a package as go list prints it.
type listed struct {
	pkg
	TestGoFiles, XTestGoFiles []string
}

// files returns the paths of the package's test files.
func (l listed) files() []string {
	files := slices.Concat(l.TestGoFiles, l.XTestGoFiles)
	for i, file := range files {
		files[i] = filepath.Join(l.Dir, file)
	}
	return files
}

// list runs go list in a folder.
func list(folder string, args []string) ([]listed, error) {
	command := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, args...)...)
	var problem strings.Builder
	command.Dir, command.Stderr = folder, &problem
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, problem.String())
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, l)
	}
}

// tests returns the tests of a file.
func tests(path string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, declared := range file.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && function.Recv == nil && isTest(function.Name.Name) {
			names = append(names, function.Name.Name)
		}
	}
	return names, nil
}

// isTest reports whether go test runs a function of that name.
func isTest(name string) bool {
	rest, ok := strings.CutPrefix(name, "Test")
	first, _ := utf8.DecodeRuneInString(rest)
	return ok && name != "TestMain" && !unicode.IsLower(first)
}
