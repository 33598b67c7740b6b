//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

// sectionOf returns the part of a page from a heading to the next of its level or above.
func sectionOf(t *testing.T, page, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleDir(t), "docs", page))
	require.NoError(t, err)
	_, after, found := strings.Cut("\n"+string(text), "\n"+heading+"\n")
	require.True(t, found, "%s has no heading %q", page, heading)
	level, _, _ := strings.Cut(heading, " ")
	for _, end := range []string{"# ", "## ", "### "} {
		if len(end) <= len(level)+1 {
			after, _, _ = strings.Cut(after, "\n"+end)
		}
	}
	return after
}

// The pages have the exit codes of every command's help, and no others.
func TestPagesHaveTheExitCodes(t *testing.T) {
	t.Parallel()
	places := map[string][2]string{
		"accuracy":        {"accuracy.md", "## Exit codes"},
		"accuracy stress": {"accuracy.md", "## Stress"},
		"bench renewal":   {"bench.md", "## leasewheel bench renewal"},
		"bench lock":      {"bench.md", "## leasewheel bench lock"},
		"ls":              {"cli.md", "## leasewheel ls, inspect, unlock"},
		"inspect":         {"cli.md", "## leasewheel ls, inspect, unlock"},
		"unlock":          {"cli.md", "## leasewheel ls, inspect, unlock"},
	}
	for _, name := range []string{"run", "watch", "acl", "queue", "doctor", "demo"} {
		places[name] = [2]string{"cli.md", "## leasewheel " + name}
	}
	inHelp := map[[2]string]map[string]bool{}
	code := regexp.MustCompile(`(?m)^(?:  |\| )(\d+(?:[-+][N\d]+)?) +[^ ]`)
	eachCommand(func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "leasewheel ")
		if strings.HasSuffix(cmd.Long, exit.PrintedCodes) || name == "version" || !cmd.HasParent() {
			return // it prints a text, or its help has the codes of all
		}
		if strings.HasPrefix(name, "queue ") {
			name = "queue"
		}
		place, ok := places[name]
		if !assert.True(t, ok, "no page is known for %q", name) {
			return
		}
		if inHelp[place] == nil {
			inHelp[place] = map[string]bool{}
		}
		_, codes, _ := strings.Cut(cmd.Long, "\nExit codes")
		for _, found := range code.FindAllStringSubmatch(codes, -1) {
			inHelp[place][found[1]] = true
		}
	})
	assert.Len(t, inHelp, len(places)-2, "three commands share a place")
	for place, want := range inHelp {
		_, table, found := strings.Cut(sectionOf(t, place[0], place[1]), "\n| code | meaning |\n")
		assert.True(t, found, "no table in %q", place)
		table, _, _ = strings.Cut(table, "\n\n")
		got := map[string]bool{}
		for _, row := range code.FindAllStringSubmatch(table, -1) {
			got[row[1]] = true
		}
		assert.Equal(t, want, got, place)
	}
}
