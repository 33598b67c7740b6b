//go:build unix

package doctor

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// What a server reports cannot act upon a terminal.
func TestDiagnosisIsPrintable(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\u202e\n"
	r := driver.Report{
		Servers:  []driver.Server{{Address: evil, Version: evil, Role: evil, ID: evil}},
		Findings: []driver.Finding{{Server: evil, Topic: evil, Found: evil, Promise: evil, Advice: evil}},
	}
	var text, document strings.Builder
	require.NoError(t, writeText(&text, &r))
	require.NoError(t, writeJSON(&document, &r))
	for _, out := range []string{text.String(), document.String()} {
		assert.NotContains(t, out, "\x1b")
		assert.NotContains(t, out, "\u202e")
	}
	assert.Equal(t, 7, strings.Count(text.String(), "\n"))
}
