package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/packages"
)

// platformChecker checks packages for one platform after the other.
type platformChecker struct {
	root     string // the module's folder; files below keep the bodies of their functions
	files    *token.FileSet
	problems []string

	mu     sync.Mutex
	parsed map[string]parsedFile // guarded by mu; by path: most files belong to several platforms
}

type parsedFile struct {
	file *ast.File
	err  error
}

func newChecker() *platformChecker {
	root, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return &platformChecker{root: root + string(filepath.Separator), files: token.NewFileSet(), parsed: make(map[string]parsedFile)}
}

// parse parses a file, or returns it as it was parsed for another platform.
func (c *platformChecker) parse(files *token.FileSet, path string, source []byte) (*ast.File, error) {
	c.mu.Lock()
	known, ok := c.parsed[path]
	c.mu.Unlock()
	if ok {
		return known.file, known.err
	}
	mode := parser.SkipObjectResolution
	ours := strings.HasPrefix(path, c.root)
	if ours {
		mode |= parser.ParseComments
	}
	file, err := parser.ParseFile(files, path, source, mode)
	if file != nil && !ours {
		for _, declared := range file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok {
				function.Body = nil
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parsed[path] = parsedFile{file, err}
	return file, err
}

// checkAll checks the packages for each of several platforms, on the first processor of a system
// also without the tags.
func (c *platformChecker) checkAll(platforms, tags string, patterns []string) {
	untagged := make(map[string]bool) // by system
	for platform := range strings.FieldsSeq(platforms) {
		fmt.Fprintf(os.Stdout, "%s: vet %s\n", platform, strings.Join(patterns, " "))
		c.check(platform, tags, patterns)
		if system, _, _ := strings.Cut(platform, "/"); tags != "" && !untagged[system] {
			untagged[system] = true
			if others := c.others(platform, tags, patterns); len(others) > 0 {
				c.check(platform, "", others)
			}
		}
	}
}

// check checks the packages that match the patterns, with build tags.
func (c *platformChecker) check(platform, tags string, patterns []string) {
	found, err := c.load(platform, tags, patterns, packages.NeedCompiledGoFiles|packages.NeedImports|packages.NeedDeps|
		packages.NeedTypes|packages.NeedSyntax|packages.NeedTypesInfo|packages.NeedTypesSizes|packages.NeedModule)
	if err != nil {
		c.problem(platform, err)
		return
	}
	c.analyze(platform, found)
}

// load loads the packages that match the patterns: their names and files, and what the mode needs.
func (c *platformChecker) load(platform, tags string, patterns []string, mode packages.LoadMode) ([]*packages.Package, error) {
	system, processor, _ := strings.Cut(platform, "/")
	found, err := packages.Load(&packages.Config{
		Mode:  packages.NeedName | packages.NeedFiles | mode,
		Tests: true, Fset: c.files, ParseFile: c.parse, BuildFlags: []string{"-tags=" + tags},
		Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+processor),
	}, patterns...)
	return slices.DeleteFunc(found, func(pkg *packages.Package) bool {
		return strings.HasSuffix(pkg.ID, ".test") // the generated main package of tests
	}), err
}

// others returns patterns of the packages that have other files without the tags. If only tests
// differ, no package that imports theirs differs.
func (c *platformChecker) others(platform, tags string, patterns []string) (others []string) {
	with, err := c.sources(platform, tags, patterns)
	if err != nil {
		c.problem(platform, err)
		return nil
	}
	without, err := c.sources(platform, "", patterns)
	if err != nil {
		c.problem(platform, err)
		return nil
	}
	all := maps.Clone(with)
	maps.Copy(all, without)
	for folder := range all {
		if slices.Equal(with[folder], without[folder]) {
			continue
		}
		for _, file := range slices.Concat(with[folder], without[folder]) {
			both := slices.Contains(with[folder], file) && slices.Contains(without[folder], file)
			if !both && !strings.HasSuffix(file, "_test.go") {
				return patterns
			}
		}
		if without[folder] != nil {
			others = append(others, folder)
		}
	}
	slices.Sort(others)
	return others
}

// sources returns the files of the packages that match the patterns, in their order, by folder.
func (c *platformChecker) sources(platform, tags string, patterns []string) (map[string][]string, error) {
	found, err := c.load(platform, tags, patterns, 0)
	files := make(map[string][]string)
	for _, pkg := range found {
		for _, file := range pkg.GoFiles {
			folder := filepath.Dir(file)
			files[folder] = append(files[folder], file)
		}
	}
	for folder := range files {
		slices.Sort(files[folder])
		files[folder] = slices.Compact(files[folder])
	}
	return files, err
}

// analyze reports the errors of the packages or, if there are none, what the analyzers find.
func (c *platformChecker) analyze(platform string, found []*packages.Package) {
	failed := false
	tested := make(map[string]bool) // by path: the package with the files of its tests is among those found
	for _, pkg := range found {
		tested[pkg.PkgPath] = tested[pkg.PkgPath] || pkg.ID != pkg.PkgPath
		for _, err := range pkg.Errors {
			failed = true
			c.problem(platform, err)
		}
	}
	if failed {
		return
	}
	found = slices.DeleteFunc(found, func(pkg *packages.Package) bool { return pkg.ID == pkg.PkgPath && tested[pkg.PkgPath] })
	// Imports without bodies count as ill-typed: their files do not use what they import.
	packages.Visit(found, nil, func(pkg *packages.Package) { pkg.IllTyped = false })
	graph, err := checker.Analyze(vet.Suite, found, &checker.Options{})
	if err != nil {
		c.problem(platform, err)
		return
	}
	for _, action := range graph.Roots {
		if action.Err != nil {
			c.problem(platform, action.Err)
		}
		for _, d := range action.Diagnostics {
			c.problem(platform, fmt.Errorf("%s: %s: %s", c.files.Position(d.Pos), action.Analyzer.Name, d.Message))
		}
	}
}

// problem records a problem, once for a platform.
func (c *platformChecker) problem(platform string, err error) {
	text := fmt.Sprintf("%s: %v", platform, err)
	if slices.Contains(c.problems, text) {
		return
	}
	c.problems = append(c.problems, text)
}
