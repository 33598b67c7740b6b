//go:build unix

package demo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

func TestDemoRefusesArguments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"argument":       {[]string{"now"}, exit.Usage, "takes no arguments"},
		"one process":    {[]string{"--processes", "1"}, exit.Usage, "accepted are 3 to 64"},
		"no leases":      {[]string{"--leases", "0"}, exit.Usage, "accepted are 10 to 100000"},
		"short TTL":      {[]string{"--ttl", "10ms"}, exit.Usage, "accepted are 1s to 10s"},
		"long":           {[]string{"--duration", "1h"}, exit.Usage, "accepted are 0 to 40s"},
		"malformed URL":  {[]string{"--store", "redis://:" + commandtest.Secret + "@h:x"}, exit.Usage, "malformed URL"},
		"no server":      {[]string{"--store", "redis://:" + commandtest.Secret + "@127.0.0.1:1"}, exit.Unavailable, "server 127.0.0.1:1: "},
		"no folder":      {[]string{"--html", "no/such/folder/x.html"}, exit.Usage, "cannot write the report: open no/such/folder/x.html: no such file"},
		"a folder":       {[]string{"--html", "../page"}, exit.Usage, "cannot write the report: open ../page: is a directory"},
		"file not found": {[]string{"--store-file", "/nonexistent/url"}, exit.Usage, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := commandtest.Call(t, nil, append([]string{"demo"}, test.args...)...)
			assert.Equal(t, test.code, p.Wait())
			p.RequireOneLine(test.says)
		})
	}
}

// A server that answers, and refuses locks, is named with its reason before a process is started.
func TestDemoOnAServerThatRefusesLocks(t *testing.T) {
	for directive, reason := range map[string]string{"maxmemory 1": "out of memory", "replicaof 127.0.0.1 1": "read-only replica"} {
		server := redistest.Start(t, redistest.Config{Directives: []string{directive}})
		p := commandtest.Call(t, nil, "demo", "--store", server.URL())
		assert.Equal(t, exit.Unavailable, p.Wait())
		p.RequireOneLine(reason)
	}
}

// A worker is the demo's to start, not a person's.
func TestDemoWorkerAlone(t *testing.T) {
	p := commandtest.Start(t, nil, workerCommand)
	require.NoError(t, p.Stdin.Close())
	assert.Equal(t, exit.Internal, p.Wait())
	p.RequireOneLine("this command is for leasewheel demo")
}
