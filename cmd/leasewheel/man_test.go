//go:build unix

package main

import (
	"bytes"
	"flag"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/stretchr/testify/require"
)

var writeMan = flag.Bool("write-man", false, "write the man pages into docs/man")

// manPages returns the page of every command by the name of its file. Cobra's generator is
// used by this test alone, so that it is no part of the command.
func manPages(t *testing.T) map[string][]byte {
	t.Helper()
	pages := map[string][]byte{}
	var all []*cobra.Command
	eachCommand(func(cmd *cobra.Command) { all = append(all, cmd) })
	for _, cmd := range all {
		if cmd.HasParent() {
			// The generator adds a help command, which only the root has.
			cmd.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true})
		}
		cmd.DisableAutoGenTag = true // it has the date
		cmd.Long = markdownOf(cmd.Long)
		header := &doc.GenManHeader{Section: "1", Source: "leasewheel", Manual: "leasewheel", Date: &time.Time{}}
		var page bytes.Buffer
		require.NoError(t, doc.GenMan(cmd, header, &page))
		// The pages change with the command, not with the day.
		text := bytes.ReplaceAll(page.Bytes(), []byte(header.Date.Format("Jan 2006")), nil)
		text = noDefault.ReplaceAll(text, []byte("$1"))
		pages[strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"] = text
	}
	return pages
}

// noDefault matches what the generator prints behind a flag that has no default.
var noDefault = regexp.MustCompile(`(?m)^(\\fB-.*\\fP)(=|=""|=\[\]|\[=false\])$`)

// markdownOf returns the Markdown of a help, which is what the generator reads: indented
// lines stay as they are, and no character of the others has a meaning.
func markdownOf(help string) string {
	var b strings.Builder
	indented := false
	for line := range strings.Lines(help) {
		was := indented
		indented = strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
		if indented != was && strings.TrimSpace(line) != "" {
			b.WriteString("\n")
		}
		switch {
		case indented:
			b.WriteString("    " + line)
		default:
			b.WriteString(strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, "`", "\\`", `[`, `\[`, `]`, `\]`, `<`, `\<`, `#`, `\#`).Replace(line))
		}
	}
	return b.String()
}

// The lines of a list of exit codes stay lines, and the signs of patterns stay signs.
func TestMarkdownOf(t *testing.T) {
	t.Parallel()
	help := "Any \"*\" of [a-z].\n\nExit codes:\n  0   fine\n  64  not\n\nEnd"
	require.Equal(t, "Any \"\\*\" of \\[a-z\\].\n\nExit codes:\n\n      0   fine\n      64  not\n\nEnd", markdownOf(help))
}
