package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What serves tests is no part of the command, on any system. .ci/release checks the same,
// and the size, of each binary.
func TestBinaryHasNoTestPackages(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"linux", "darwin", "windows"} {
		command := exec.Command("go", "list", "-deps", ".")
		command.Env = append(command.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := command.Output()
		require.NoError(t, err)
		packages := strings.Fields(string(out))
		assert.Contains(t, packages, module+"/lock/redisstore")
		for _, pkg := range packages {
			for _, test := range []string{
				"testing", "github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/anishathalye/porcupine",
				"github.com/spf13/cobra/doc", "github.com/cpuguy83/go-md2man", "github.com/russross/blackfriday",
			} {
				assert.False(t, pkg == test || strings.HasPrefix(pkg, test+"/"), "%s: %s", system, pkg)
			}
		}
	}
}

// A template keeps the linker from dropping methods: 8 MB of the binary. Cobra executes
// none unless a command sets one.
func TestBinaryExecutesNoTemplate(t *testing.T) {
	t.Parallel()
	template := regexp.MustCompile(`\.Set(Version|Usage|Help)Template\(|"(text|html)/template"`)
	checked := 0
	require.NoError(t, filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		assert.NotRegexp(t, template, string(text), file)
		checked++
		return err
	}))
	assert.Greater(t, checked, 50)
}
