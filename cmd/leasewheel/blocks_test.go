package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// block is one code block of a document.
type block struct {
	document, language string
	lines              []string // without the indentation of a list
}

func (b block) text() string { return strings.Join(b.lines, "\n") + "\n" }

// documents returns the paths of README and all other documents, from the module's folder.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(moduleDir(t), filepath.FromSlash(pattern)))
		require.NoError(t, err)
		for _, path := range paths {
			relative, err := filepath.Rel(moduleDir(t), path)
			require.NoError(t, err)
			all = append(all, filepath.ToSlash(relative))
		}
	}
	require.Contains(t, all, "README.md")
	return all
}

// documentBlocks returns the fenced code blocks of a document, and those that are indented.
func documentBlocks(t *testing.T, document string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleDir(t), filepath.FromSlash(document)))
	require.NoError(t, err)
	var all []block
	var open *block // the fenced block that is read
	indent, blank, list, indented := "", true, false, false
	for line := range strings.SplitSeq(string(text), "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case open != nil && trimmed == "```":
			all = append(all, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, strings.TrimPrefix(line, indent))
		case strings.HasPrefix(trimmed, "```"):
			indent = line[:len(line)-len(trimmed)]
			open = &block{document: document, language: trimmed[len("```"):]}
		case indented && strings.HasPrefix(line, "    "):
			last := &all[len(all)-1]
			last.lines = append(last.lines, line[4:])
		case blank && !list && strings.HasPrefix(line, "    "):
			all = append(all, block{document: document, lines: []string{line[4:]}})
			indented = true
			continue
		}
		indented = indented && strings.HasPrefix(line, "    ")
		blank = trimmed == ""
		if !blank && open == nil {
			list = regexp.MustCompile(`^([-*]|\d+\.) `).MatchString(trimmed) || list && trimmed != line
		}
	}
	require.Nil(t, open, "%s: a code block without an end", document)
	return all
}

// textBlocks are the blocks that are neither Go nor commands, by their document and first
// words, with what tests them.
var textBlocks = map[string]string{
	"README.md: leasewheel run [flags]":             "TestUsageBlocks",
	"SECURITY.md: user leasewheel on":               "TestSecurityDocument",
	"SECURITY.md:   ":                               "TestSecurityDocument",
	"docs/starting.md: One lock  6 processes":       "TestDemoReportOfAGoodRun",
	"docs/cli.md: 12:00:00  every 2s":               "TestScreenLines",
	"docs/cli.md: ID         STATE":                 "TestOutputBlocks",
	"docs/CONTRIBUTING.md: timeout ← bucket":        "TestImports",
	"docs/architecture.md: timeout ← bucket":        "TestImports",
	"docs/accuracy.md: leasewheel accuracy [flags]": "TestUsageBlocks",
	"docs/cli.md: leasewheel run [flags]":           "TestUsageBlocks",
	"docs/cli.md: redis://[[user]:password@]host":   "TestURLBlock",
	"docs/cli.md: # crontab":                        "TestServiceBlocks",
	"docs/cli.md: [Service]":                        "TestServiceBlocks",
	"docs/cli.md: FROM ":                            "TestServiceBlocks",
	"docs/cli.md: NAME       KIND":                  "TestOutputBlocks",
	"docs/cli.md: lock       downloads":             "TestOutputBlocks",
	"docs/cli.md: SERVER            VERSION":        "TestOutputBlocks",
}

// textBlock returns the text block of a document that begins with these words.
func textBlock(t *testing.T, document, start string) block {
	t.Helper()
	for _, b := range documentBlocks(t, document) {
		if strings.HasPrefix(b.lines[0], start) {
			return b
		}
	}
	require.Fail(t, "no such block", "%s: %s", document, start)
	return block{}
}

// Each code block of every document is executed, or is a text that a test compares: Go by
// TestGoBlocks, commands by TestShellBlocks, texts as textBlocks has them.
func TestDocumentBlocks(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for _, document := range documents(t) {
		for _, b := range documentBlocks(t, document) {
			if b.language == "go" || b.language == "sh" {
				continue
			}
			name, known := document+": "+b.lines[0], false
			for start := range textBlocks {
				if strings.HasPrefix(name, start) {
					used[start], known = true, true
				}
			}
			assert.True(t, known, "%q: mark commands as sh and Go as go; a text needs a test, to be listed in textBlocks", name)
			assert.Empty(t, b.language, name)
		}
	}
	for start := range textBlocks {
		assert.True(t, used[start], "no document has the text %q", start)
	}
}

// goBlocks are where the Go code of each document is run, in the document's order.
var goBlocks = map[string][]func(t *testing.T, b block){
	"README.md": {
		isBody("lock/memstore/example_readme_test.go", "readmeLock"),
		isBody("wheel/example_readme_test.go", "Example_readme"),
	},
	"docs/starting.md": {
		runsInAnEmptyModule("shipping, the lease is valid: true\n"),
		isBody("lock/redisstore/example_readme_test.go", "readmeLock"),
		isBody("lock/redisstore/example_readme_test.go", "readmeDeferred"),
		isBody("lock/delayqueue/example_readme_test.go", "readmeQueue"),
		isBody("lock/elect/example_test.go", "readmeElection"),
	},
	"docs/CONTRIBUTING.md": {isPartOf("lock/locktest/redistest/contributing_test.go", "TestContributing")},
	"docs/metrics.md": {
		isPartOf("lock/lockprom/example_test.go", "Example"),
		isPartOf("lock/lockotel/example_test.go", "Example"),
	},
	"docs/upstream.md": {showsTheDefect},
}

// The Go code of every document is that of examples and tests.
func TestGoBlocks(t *testing.T) {
	t.Parallel()
	for _, document := range documents(t) {
		var found []block
		for _, b := range documentBlocks(t, document) {
			if b.language == "go" {
				found = append(found, b)
			}
		}
		if assert.Len(t, found, len(goBlocks[document]), "%s: each block of Go needs a place in goBlocks", document) {
			for i, b := range found {
				goBlocks[document][i](t, b)
			}
		}
	}
}

// isBody checks that a block is all of a function.
func isBody(file, function string) func(t *testing.T, b block) {
	return func(t *testing.T, b block) {
		t.Helper()
		assert.Equal(t, body(t, file, function), b.text())
	}
}

// runsInAnEmptyModule checks that a block is a program that runs in a module of its own.
func runsInAnEmptyModule(output string) func(t *testing.T, b block) {
	return func(t *testing.T, b block) {
		t.Helper()
		dir := t.TempDir()
		sums, err := os.ReadFile(filepath.Join(moduleDir(t), "go.sum"))
		require.NoError(t, err)
		for name, text := range map[string]string{
			"go.mod":  "module shop\n\ngo 1.26\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + strconv.Quote(moduleDir(t)) + "\n",
			"go.sum":  string(sums),
			"main.go": b.text(),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		run := exec.Command("go", "run", "-mod=mod", ".")
		run.Dir, run.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
		out, err := run.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Equal(t, output, string(out))
	}
}

// isPartOf checks that a block is a part of a function. A line with "…" stands for lines that
// are left out.
func isPartOf(file, function string) func(t *testing.T, b block) {
	return func(t *testing.T, b block) {
		t.Helper()
		rest := body(t, file, function)
		for part := range strings.SplitSeq(b.text(), "…\n") {
			_, after, found := strings.Cut("\n"+rest, "\n"+part)
			assert.True(t, found, "%s: %s does not contain\n%s", b.document, function, part)
			rest = after
		}
	}
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

// showsTheDefect checks that the loop of a block's program is that of TestDefectOfGoRedis.
func showsTheDefect(t *testing.T, b block) {
	t.Helper()
	_, loop, found := strings.Cut(b.text(), "\tfor _, kind")
	require.True(t, found)
	loop, _, found = strings.Cut(loop, "\n\t}\n")
	require.True(t, found)
	loop = strings.ReplaceAll(strings.ReplaceAll(loop, "\n\t", "\n"), "fmt.Printf(", "fmt.Fprintf(&out, ")
	assert.Contains(t, body(t, "cmd/leasewheel/blocks_test.go", "TestDefectOfGoRedis"), "for _, kind"+loop)
}

// go-redis behaves as a report to it says, in docs/upstream.md.
func TestDefectOfGoRedis(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t, redistest.Config{}).Client(t), t.Context()
	var out strings.Builder
	for _, kind := range []string{"WRONGTYPE", "OOM"} {
		pipe := client.Pipeline()
		first := pipe.Eval(ctx, "return {1, {err = ARGV[1]}, 'left', 'behind'}", nil, kind+" text")
		second := pipe.Echo(ctx, "second")
		third := pipe.Echo(ctx, "third")
		_, _ = pipe.Exec(ctx)
		fmt.Fprintf(&out, "%s\n  first  %v, %v\n  second %q, %v\n  third  %q, %v\n", kind,
			first.Val(), first.Err(), second.Val(), second.Err(), third.Val(), third.Err())
	}
	for _, seen := range []string{`second "second", <nil>`, `third  "third", <nil>`, `second "left", <nil>`, `third  "behind", <nil>`} {
		assert.Contains(t, out.String(), seen)
	}
}

// The synopses name commands as their help does. A second line for a command is another form
// of it, whose flags exist.
func TestUsageBlocks(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"README.md", "docs/accuracy.md", "docs/cli.md"} {
		seen := make(map[string]bool)
		for _, line := range textBlock(t, of, "leasewheel ").lines {
			usage, _, _ := strings.Cut(line, "   ")
			command := checkFlags(t, of, usage)
			if command != nil && !seen[command.CommandPath()] {
				seen[command.CommandPath()] = true
				assert.Equal(t, strings.ReplaceAll(command.UseLine(), "...", "…"), usage, of)
			}
		}
	}
}

// checkFlags checks that the command of a line exists, with the flags that precede its
// arguments, and returns it.
func checkFlags(t *testing.T, document, line string) *cobra.Command {
	t.Helper()
	tree := root.NewCommand("leasewheel")
	tree.InitDefaultCompletionCmd()
	command, rest, err := tree.Find(strings.Fields(line)[1:])
	if !assert.NoError(t, err, "%s: %s", document, line) {
		return nil
	}
	command.InitDefaultHelpFlag()
	for _, word := range rest {
		name, _, _ := strings.Cut(strings.Trim(word, "[]"), "=")
		switch long, is := strings.CutPrefix(name, "--"); {
		case name == "--":
			return command // COMMAND follows
		case is:
			assert.NotNil(t, command.Flags().Lookup(long), "%s: %s: --%s", document, line, long)
		case len(name) > 1 && name[0] == '-':
			assert.NotNil(t, command.Flags().ShorthandLookup(name[1:2]), "%s: %s: %s", document, line, name)
		}
	}
	return command
}

// Commands within the text exist, and so do their flags.
func TestCommandsInTheText(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, document := range documents(t) {
		text, err := os.ReadFile(filepath.Join(moduleDir(t), filepath.FromSlash(document)))
		require.NoError(t, err)
		for _, span := range regexp.MustCompile("`(leasewheel [a-z][^`]*)`").FindAllStringSubmatch(string(text), -1) {
			checkFlags(t, document, span[1])
			checked++
		}
		for _, span := range regexp.MustCompile("`make ([a-z]+)[^`]*`").FindAllStringSubmatch(string(text), -1) {
			assert.Contains(t, makefile(t), "\n"+span[1]+":", "%s: %s", document, span[0])
			checked++
		}
	}
	assert.Greater(t, checked, 50)
}

func makefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "Makefile"))
	require.NoError(t, err)
	return string(text)
}

// In a clone whose path has blanks, every target quotes it, and is a rule of its own.
func TestMakefileInAFolderWithBlanks(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "lease wheel")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, ".ci", "tools"), 0o700))
	for path, text := range map[string]string{"Makefile": makefile(t), ".ci/tools/go.mod": "", ".ci/tools/go.sum": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.FromSlash(path)), []byte(text), 0o600))
	}
	targets := regexp.MustCompile(`(?m)^[a-z-]+:`).FindAllString(makefile(t), -1)
	assert.Greater(t, len(targets), 20)
	args := []string{"--dry-run", "--always-make", "--directory", folder}
	for _, target := range targets {
		args = append(args, strings.TrimSuffix(target, ":"))
	}
	out, err := exec.Command("make", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), "warning: ")
	commands := regexp.MustCompile(`(?m)^make: .*|'[^'\n]*'`).ReplaceAllString(string(out), "") // quoted, or of make itself
	assert.NotContains(t, commands, "lease wheel")
}

// The crontab, the unit and the image have flags that run accepts, before the name.
func TestServiceBlocks(t *testing.T) {
	t.Parallel()
	plain := strings.NewReplacer("[\"", "", "\", \"", " ", "\"]", "")
	for _, start := range []string{"# crontab", "[Service]", "FROM "} {
		_, line, _ := strings.Cut(plain.Replace(textBlock(t, "docs/cli.md", start).text()), "leasewheel run ")
		line, _, _ = strings.Cut(line, "\n")
		run, _, err := root.NewCommand("leasewheel").Find([]string{"run"})
		require.NoError(t, err)
		require.NoError(t, run.ParseFlags(strings.Fields(line)), line)
		require.NotEmpty(t, run.Flags().Args(), line)
		assert.Equal(t, "nightly", run.Flags().Arg(0), line)
	}
}

// The command accepts the forms of URLs that the manual has.
func TestURLBlock(t *testing.T) {
	t.Parallel()
	form := strings.NewReplacer("[[user]:password@]", "user:password@", "host[:port][/db]", "host:6380/1", "…", "user:password@host:6380/1",
		"host:port", "host:6380", "NAME", "main")
	for _, line := range textBlock(t, "docs/cli.md", "redis://").lines {
		url := form.Replace(strings.Fields(line)[0])
		store, err := redisstore.Open(url, redisstore.Config{})
		if assert.NoError(t, err, "%s, as %s", line, url) {
			assert.NoError(t, store.Close())
		}
	}
}
