//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The version is one line with the version of Go, by the command and by the flag.
func TestVersion(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version"} {
		p := start(t, nil, arg)
		assert.Equal(t, 0, p.wait())
		assert.Regexp(t, `^leasewheel \S+ go1\.\S+\n$`, p.stdout.String(), arg)
		assert.Empty(t, p.stderr.String())
	}
}

// A command, a flag or an argument that does not exist is one line and exit code 64.
func TestUnknownArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"frob"}, {"--frob"}, {"version", "frob"}} {
		p := start(t, nil, args...)
		assert.Equal(t, exitUsage, p.wait(), args)
		assert.Empty(t, p.stdout.String())
		p.requireOneLine("frob")
	}
}
