//go:build real && unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// While the command runs the lock is on the server in Redisson's format, and outlives its
// TTL.
func TestRunHoldsTheLockInRedissonsFormat(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	client, ctx := server.Client(t), bounded(t)
	const ttl = 1200 * time.Millisecond
	held := holder(t, env, "--ttl", ttl.String())
	for range 3 { // TTLs, by the server's own clock
		fields, err := client.HGetAll(ctx, "job").Result()
		require.NoError(t, err)
		require.Len(t, fields, 1)
		for owner, count := range fields {
			assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}:\d+$`, owner)
			assert.Equal(t, "1", count)
		}
		left, err := client.PTTL(ctx, "job").Result()
		require.NoError(t, err)
		require.Positive(t, left)
		begun, err := client.Time(ctx).Result()
		require.NoError(t, err)
		eventually(t, "a TTL later", func() bool {
			now, err := client.Time(ctx).Result()
			return err == nil && now.Sub(begun) > ttl
		})
	}
	require.NoError(t, held.stdin.Close())
	assert.Equal(t, 0, held.wait())
	exists, err := client.Exists(ctx, "job").Result()
	require.NoError(t, err)
	assert.Zero(t, exists)
}

func TestRunMaxHold(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	const most = 2 * time.Second // in which the command has begun
	for name, test := range map[string]struct {
		script string
		flags  []string
	}{
		"asked":              {"trap 'exit 0' TERM; echo held; cat", []string{"--grace", "10s"}},
		"deaf":               {"trap '' TERM; echo held; cat", []string{"--grace", "100ms"}},
		"killed":             {"trap '' TERM; echo held; cat", []string{"--on-lost", "kill"}},
		"loss to be ignored": {"trap '' TERM; echo held; cat", []string{"--on-lost", "ignore", "--grace", "100ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			p := start(t, env, run(name, sh(test.script), append(test.flags, "--max-hold", most.String())...)...)
			require.Equal(t, "held", p.line())
			assert.Equal(t, exitLost, p.wait())
			assert.GreaterOrEqual(t, time.Since(begin), most)
			assert.Less(t, time.Since(begin), 10*time.Second, "grace is not waited for if nothing needs it")
			p.requireReport("--max-hold is over")
			next := start(t, env, run(name, sh("true"), "-n")...)
			assert.Equal(t, 0, next.wait(), "the lock was given back")
		})
	}
}
