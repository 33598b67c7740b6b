package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page of other libraries' defects has a thread, and a test here or the reason why there is
// none, in each row; and the tests exist.
func TestDefectsOfPeers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(moduleDir(t), "docs", "defects-of-peers.md"))
	require.NoError(t, err)
	_, timers, found := strings.Cut(string(page), "\n## Timers\n")
	require.True(t, found)
	timers, locks, found := strings.Cut(timers, "\n## Locks\n")
	require.True(t, found)
	for name, table := range map[string]string{"timers": timers, "locks": locks} {
		rows := 0
		for line := range strings.Lines(table) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			if len(cells) != 3 || strings.HasPrefix(line, "| defect") || strings.HasPrefix(line, "| ---") {
				continue
			}
			rows++
			named := namedTests(t, cells[2])
			assert.True(t, named > 0 || strings.Contains(cells[2], "not answered"), "%s: %s", name, line)
			if name == "locks" {
				assert.Regexp(t, `\]\(https://github\.com/[\w.-]+/[\w.-]+/issues/\d+\)`, cells[1])
			}
		}
		assert.GreaterOrEqual(t, rows, 30, name)
	}
}

// namedTests counts the tests that a text names by package and name, as `lock.TestX`, all of
// which exist.
func namedTests(t *testing.T, text string) (named int) {
	t.Helper()
	for _, match := range regexp.MustCompile("`([\\w/]+)\\.((?:Test|Fuzz|Example)\\w*)`").FindAllStringSubmatch(text, -1) {
		files, err := filepath.Glob(filepath.Join(moduleDir(t), filepath.FromSlash(match[1]), "*_test.go"))
		require.NoError(t, err)
		exists := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			exists = exists || strings.Contains(string(source), "\nfunc "+match[2]+"(")
		}
		assert.True(t, exists, "%s.%s does not exist", match[1], match[2])
		named++
	}
	return named
}
