//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDemoRefusesArguments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"argument":       {[]string{"now"}, exitUsage, "takes no arguments"},
		"one process":    {[]string{"--processes", "1"}, exitUsage, "accepted are 3 to 64"},
		"no leases":      {[]string{"--leases", "0"}, exitUsage, "accepted are 10 to 100000"},
		"short TTL":      {[]string{"--ttl", "10ms"}, exitUsage, "accepted are 1s to 10s"},
		"long":           {[]string{"--duration", "1h"}, exitUsage, "accepted are 0 to 40s"},
		"malformed URL":  {[]string{"--redis", "redis://:" + secret + "@h:x"}, exitUsage, "malformed URL"},
		"no server":      {[]string{"--redis", "redis://:" + secret + "@127.0.0.1:1"}, exitUnavailable, "server 127.0.0.1:1: "},
		"no folder":      {[]string{"--html", "no/such/folder/x.html"}, exitUsage, "cannot write the report: open no/such/folder/x.html: no such file"},
		"a folder":       {[]string{"--html", "testdata"}, exitUsage, "cannot write the report: open testdata: is a directory"},
		"file not found": {[]string{"--redis-file", "/nonexistent/url"}, exitUsage, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := call(t, nil, append([]string{"demo"}, test.args...)...)
			assert.Equal(t, test.code, p.wait())
			p.requireOneLine(test.says)
		})
	}
}

// A worker is the demo's to start, not a person's.
func TestDemoWorkerAlone(t *testing.T) {
	p := start(t, nil, workerCommand)
	require.NoError(t, p.stdin.Close())
	assert.Equal(t, exitInternal, p.wait())
	p.requireOneLine("this command is for leasewheel demo")
}
