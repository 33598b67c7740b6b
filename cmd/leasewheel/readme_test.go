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
	for _, command := range root.NewCommand("leasewheel").Commands() {
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
	assert.LessOrEqual(t, strings.Count(text, "\n"), 200)
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

// Links within the repository have targets, and those to a part of a document its heading.
func TestDocumentLinks(t *testing.T) {
	root := moduleDir(t)
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/results/*.md", "lock/testdata/planted/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		documents = append(documents, paths...)
	}
	link := regexp.MustCompile(`\]\(([^):#]*)(?:#([^):]+))?\)`)
	parts := 0
	for _, document := range documents {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			target := document
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(document), match[1])
			}
			_, err := os.Stat(target)
			if assert.NoError(t, err, "%s links to %s", filepath.Base(document), match[1]) && match[2] != "" {
				parts++
				assert.Contains(t, anchors(t, target), match[2], "%s links to %s", filepath.Base(document), match[0])
			}
		}
	}
	assert.Greater(t, parts, 20, "the anchors are not read as they should be")
}

// anchors returns what GitHub derives from the headings of a document: lower case, a hyphen for
// each space, and of other characters letters, digits, hyphens and underscores.
func anchors(t *testing.T, document string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	prose := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(text), "")
	var all []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose, -1) {
		anchor := strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")
		all = append(all, regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(anchor, ""))
	}
	return all
}
