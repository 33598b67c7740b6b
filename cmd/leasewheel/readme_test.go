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
