//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// small makes a demo that takes about as long as its faults.
var small = []string{"--processes", "3", "--leases", "200", "--ttl", "2s", "--duration", "1s", "--json"}

func demoOf(t *testing.T, p *process) demoReport {
	t.Helper()
	require.Equal(t, 0, p.wait(), "%s%s", p.stdout, p.stderr)
	assert.Empty(t, p.stderr.String(), "progress is for terminals")
	var r demoReport
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &r))
	return r
}

// check compares the report's figures with the demo's flags.
func check(t *testing.T, r demoReport) {
	t.Helper()
	assert.Empty(t, r.Broken)
	assert.Equal(t, 3, r.Processes)
	assert.Equal(t, 2*time.Second, r.TTL)
	assert.Less(t, r.Elapsed, 30*time.Second)
	assert.Greater(t, r.Exclusion.Acquisitions, 10)
	assert.EqualValues(t, r.Exclusion.Acquisitions-1, r.Exclusion.Writes, "all but the frozen holder's")
	assert.Greater(t, r.Frozen.For, 2*time.Second)
	assert.Positive(t, r.Frozen.Awake)
	// The others, if a renewal was on its way when the holder was frozen, or about to be
	// sent.
	assert.Contains(t, []string{"expired here", "store unreachable", "taken over"}, r.Frozen.Cause)
	assert.Equal(t, 1, r.Frozen.StaleRefused)
	assert.Greater(t, r.Killed.Free, time.Second/2, "a dead holder's lock stays closed for about a TTL, or the second that it was handed over for")
	assert.Equal(t, 200, r.Leases.Count)
	assert.Greater(t, r.Leases.Renewals, int64(200))
	assert.Less(t, r.Leases.Batches, r.Leases.Renewals/2, "leases are renewed in batches")
	assert.Equal(t, 5, r.Leases.Told)
	assert.Greater(t, r.Timer.Fired, 100)
	assert.Positive(t, r.Timer.Max)
}

func TestDemo(t *testing.T) {
	r := demoOf(t, start(t, nowhere, append([]string{"demo"}, small...)...))
	check(t, r)
	assert.Equal(t, "embedded server", r.Server)
}

// On a real server the demo shows the same, and leaves nothing behind that does
// not expire.
func TestDemoOnARealServer(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Password: secret})
	r := demoOf(t, start(t, nil, append([]string{"demo", "--redis", server.URL()}, small...)...))
	check(t, r)
	assert.Regexp(t, `^redis \d+\.\d+`, r.Server)

	client, ctx := server.Client(t), bounded(t)
	keys, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		left, err := client.PTTL(ctx, key).Result()
		require.NoError(t, err)
		assert.Positive(t, left, key)
		known := strings.HasPrefix(key, "redisson_lock_token:{leasewheel:demo:") ||
			strings.HasPrefix(key, "leasewheel_lock_turns:{leasewheel:demo:") || strings.HasPrefix(key, "leasewheel:client:")
		assert.True(t, known, key)
	}
}

func TestDemoInterrupted(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	p := start(t, nil, "demo", "--redis", server.URL(), "--duration", "40s")
	client, ctx := server.Client(t), bounded(t)
	eventually(t, "at work", func() bool {
		n, err := client.DBSize(ctx).Result()
		return err == nil && n > 100
	})
	p.signal(unix.SIGINT)
	assert.Equal(t, 130, p.wait())
	assert.Empty(t, p.stdout.String())
	clients, err := client.ClientList(ctx).Result()
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(clients, "\n"), "only ours: no process of the demo is left\n%s", clients)
}

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
		"file not found": {[]string{"--redis-file", "/nonexistent/url"}, exitUsage, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, nil, append([]string{"demo"}, test.args...)...)
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
