package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "README.md"))
	require.NoError(t, err)
	return string(text)
}

// The Go code in the README is that of examples, which are run as tests.
func TestReadmeCodeIsTested(t *testing.T) {
	examples := []string{
		body(t, "wheel/example_readme_test.go", "Example_readme"),
		body(t, "lock/redisstore/example_readme_test.go", "readmeLock"),
		body(t, "lock/redisstore/example_readme_test.go", "readmeDeferred"),
		body(t, "lock/delayqueue/example_readme_test.go", "readmeQueue"),
		body(t, "lock/elect/example_test.go", "readmeElection"),
	}
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme(t), -1) {
		blocks = append(blocks, match[1])
	}
	assert.Equal(t, examples, blocks)
}

// body returns the text between the braces of a function, without its indentation and
// without the comment on its output.
func body(t *testing.T, file, function string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(moduleDir(t), file))
	require.NoError(t, err)
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, declaration := range parsed.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		inside := string(source[files.Position(f.Body.Lbrace).Offset+1 : files.Position(f.Body.Rbrace).Offset])
		inside, _, _ = strings.Cut(inside, "\t// Output:")
		return strings.TrimPrefix(regexp.MustCompile(`(?m)^\t`).ReplaceAllString(inside, ""), "\n")
	}
	t.Fatalf("%s: no function %s", file, function)
	return ""
}

// The README contains every command, and every exit code of run.
func TestReadmeNamesTheCommands(t *testing.T) {
	text := readme(t)
	overview := regexp.MustCompile(`(?m)^leasewheel [a-z]+`).FindAllString(text, -1)
	for _, command := range newRootCommand().Commands() {
		if !command.Hidden {
			assert.Contains(t, overview, "leasewheel "+command.Name())
		}
	}
	var codes []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \|`).FindAllStringSubmatch(text, -1) {
		codes = append(codes, strings.Split(row[1], ", ")...)
	}
	for _, code := range []int{exitUsage, exitUnavailable, exitNotAcquired, exitLost, exitCannotExec, exitNotFound} {
		assert.Contains(t, codes, strconv.Itoa(code))
	}
}

// Links within the repository have targets.
func TestDocumentLinks(t *testing.T) {
	root := moduleDir(t)
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	atRoot, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	link := regexp.MustCompile(`\]\(([^):#]+)[^):]*\)`)
	for _, document := range append(documents, atRoot...) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			target := filepath.Join(filepath.Dir(document), match[1])
			_, err := os.Stat(target)
			assert.NoError(t, err, "%s links to %s", filepath.Base(document), match[1])
		}
	}
}
