package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "README.md"))
	require.NoError(t, err)
	return string(text)
}

// The README contains every command, and every exit code of run.
func TestReadmeNamesTheCommands(t *testing.T) {
	text := readme(t)
	overview := regexp.MustCompile(`(?m)^leasewheel [a-z]+`).FindAllString(text, -1)
	for _, command := range root.NewCommand().Commands() {
		if !command.Hidden {
			assert.Contains(t, overview, "leasewheel "+command.Name())
		}
	}
	var codes []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \|`).FindAllStringSubmatch(text, -1) {
		codes = append(codes, strings.Split(row[1], ", ")...)
	}
	for _, code := range []int{exit.Usage, exit.Unavailable, exit.NotAcquired, exit.Lost, exit.CannotExec, exit.NotFound} {
		assert.Contains(t, codes, strconv.Itoa(code))
	}
}

// The README is an overview, which ends where documents begin; and what it states of other
// libraries has a date.
func TestReadmeIsShort(t *testing.T) {
	text := readme(t)
	assert.LessOrEqual(t, strings.Count(text, "\n"), 250)
	assert.Regexp(t, `(?m)^What others have, on 20\d\d-\d\d-\d\d:\n\n\| \| leasewheel \|`, text)
}

// Each program of the README is a file of its own that is run as a test. With a single
// example in it, pkg.go.dev shows the whole file.
func TestReadmeNamesThePrograms(t *testing.T) {
	_, section, found := strings.Cut(readme(t), "\n## Programs\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	programs := regexp.MustCompile(`(?m)^\| \[[^\]]+\]\(([^)]+)\)`).FindAllStringSubmatch(section, -1)
	assert.Len(t, programs, 8)
	for _, match := range programs {
		source, err := os.ReadFile(filepath.Join(moduleDir(t), filepath.FromSlash(match[1])))
		require.NoError(t, err)
		count := func(pattern string) int { return len(regexp.MustCompile(pattern).FindAll(source, -1)) }
		examples, tests := count(`(?m)^func Example`), count(`(?m)^func Test`)
		assert.True(t, examples == 1 && tests == 0 || examples == 0 && tests > 0, "%s: %d examples, %d tests", match[1], examples, tests)
		assert.Equal(t, examples, count(`(?m)^\t// Output:$`), "%s: an example without output is not run", match[1])
		assert.Positive(t, count(`(?m)^type `), "%s: pkg.go.dev shows the example's body alone", match[1])
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
