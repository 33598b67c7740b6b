//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/version"
)

// The version is one line with the version of Go, by the command and by the flag.
func TestVersion(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version"} {
		p := commandtest.Call(t, nil, arg)
		assert.Equal(t, 0, p.Wait())
		assert.Regexp(t, `^leasewheel \S+ go1\.\S+ `+runtime.GOOS+"/"+runtime.GOARCH+`( revision \S+)?( modified)?\n$`, p.Stdout.String(), arg)
		assert.Empty(t, p.Stderr.String())
	}
	p := commandtest.Call(t, nil, "version", "--json")
	assert.Equal(t, 0, p.Wait())
	var b version.Build
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &b))
	assert.Equal(t, version.Current(), b)
}

// A command, a flag or an argument that does not exist is one line and exit code 64. A
// command with a similar name is suggested.
func TestUnknownArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"frob"}, {"--frob"}, {"version", "frob"}, {"version", "--frob"}, {"help", "frob"}, {"help", "ls", "frob"},
		{"completion", "frob"}, {"completion", "bash", "frob"}, {"bench", "frob"}, {"accuracy", "frob"},
	} {
		p := commandtest.Call(t, nil, args...)
		assert.Equal(t, exit.Usage, p.Wait(), args)
		assert.Empty(t, p.Stdout.String())
		p.RequireOneLine("frob")
	}
	p := commandtest.Call(t, nil, "lss")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("similar is ls")
}

// eachCommand calls f for every command that users see.
func eachCommand(f func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		cmd.InitDefaultHelpFlag()
		f(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	tree := root.NewCommand("leasewheel")
	tree.InitDefaultHelpCmd()
	walk(tree)
}

// Every help has the exit codes.
func TestHelpHasExitCodes(t *testing.T) {
	t.Parallel()
	seen := 0
	eachCommand(func(cmd *cobra.Command) {
		seen++
		_, codes, _ := strings.Cut(cmd.Long, "\nExit codes")
		for _, code := range []string{"\n  0", "\n  64"} {
			assert.Contains(t, codes, code, cmd.CommandPath())
		}
	})
	assert.Greater(t, seen, 15)
}

// Every command that prints data has --json.
func TestJSONEverywhere(t *testing.T) {
	t.Parallel()
	without := map[string]string{
		"leasewheel":       "prints its help, or its version, which leasewheel version --json prints",
		"leasewheel run":   "prints nothing: standard output is COMMAND's",
		"leasewheel bench": "prints its help",
		"leasewheel queue": "prints its help",
		"leasewheel help":  "prints a help",
	}
	eachCommand(func(cmd *cobra.Command) {
		if strings.HasPrefix(cmd.CommandPath(), "leasewheel completion") {
			return // scripts for shells
		}
		_, excepted := without[cmd.CommandPath()]
		assert.Equal(t, !excepted, cmd.Flags().Lookup("json") != nil, cmd.CommandPath())
	})
}

// completed returns what a shell is offered, and cobra's directive to it.
func completed(t *testing.T, env []string, args ...string) (offered []string, directive string) {
	t.Helper()
	p := commandtest.Call(t, env, append([]string{cobra.ShellCompNoDescRequestCmd}, args...)...)
	require.Equal(t, 0, p.Wait(), p.Stderr.String())
	lines := strings.Split(strings.TrimSpace(p.Stdout.String()), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

const (
	noFiles = ":4"
	anyFile = ":0"
	folders = ":16"
)

// A shell shows the descriptions of flags without the marks of their placeholders.
func TestCompletionDescribesFlags(t *testing.T) {
	t.Parallel()
	p := commandtest.Call(t, nil, cobra.ShellCompRequestCmd, "run", "--store-f")
	assert.Equal(t, 0, p.Wait())
	assert.Contains(t, p.Stdout.String(), "--store-file\tread the URL from this file, which")
}

func TestCompletionOfFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args      []string
		offered   []string
		directive string
	}{
		{[]string{"ls", "--format", ""}, []string{"redisson", "plain"}, noFiles},
		{[]string{"run", "--on-lost", ""}, []string{"term", "kill", "ignore"}, noFiles},
		{[]string{"inspect", "--kind", ""}, []string{"semaphore", "permits", "latch"}, noFiles},
		{[]string{"watch", "--interval", ""}, nil, noFiles},
		{[]string{"run", "--dir", ""}, nil, folders},
		{[]string{"ls", "--store-file", ""}, nil, anyFile},
		{[]string{"run", "name", "--", ""}, nil, anyFile},
		{[]string{"acl", ""}, nil, noFiles},
		{[]string{"version", "--j"}, []string{"--json"}, noFiles},
		{[]string{"help", "bench", ""}, []string{"lock", "renewal"}, noFiles},
	} {
		offered, directive := completed(t, []string{connect.URLVariable + "="}, c.args...)
		assert.ElementsMatch(t, c.offered, offered, c.args)
		assert.Equal(t, c.directive, directive, c.args)
	}
}

// The man pages that are shipped are of this command tree; `make man` writes them.
func TestManPages(t *testing.T) {
	folder := filepath.Join(moduleDir(t), "docs", "man")
	pages := manPages(t)
	if *writeMan {
		require.NoError(t, os.RemoveAll(folder))
		require.NoError(t, os.MkdirAll(folder, 0o755))
		for name, page := range pages {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), page, 0o644)) //nolint:gosec // public
		}
	}
	for name, page := range pages {
		shipped, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err, "make man writes it")
		assert.Equal(t, string(page), string(shipped), "%s: make man writes it anew", name)
	}
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, file := range files {
		assert.Contains(t, pages, file.Name(), "make man removes it")
	}
}

// No help is wider than a terminal of 80 columns, but for examples, and no default stands there
// twice.
func TestHelpFitsIntoATerminal(t *testing.T) {
	t.Parallel()
	eachCommand(func(cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		if strings.Contains(cmd.CommandPath(), "completion ") {
			return // cobra's, with commands to copy
		}
		p := commandtest.Call(t, nil, args...)
		assert.Equal(t, 0, p.Wait(), args)
		for line := range strings.Lines(strings.ReplaceAll(p.Stdout.String(), cmd.Example, "")) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, "%s: %q", cmd.CommandPath(), line)
		}
		text := strings.Join(strings.Fields(p.Stdout.String()), " ")
		assert.Empty(t, regexp.MustCompile(`\(default[^()]*\) \(default`).FindString(text), cmd.CommandPath())
	})
}
