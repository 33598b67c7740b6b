//go:build unix

package bench

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

func TestBenchLockBroken(t *testing.T) {
	sound := lockReport{
		Pairs:     []pairFigures{{Goroutines: 3, Pairs: 1}},
		HandOvers: []handOverFigures{{Waiters: 2, Processes: 1, Grants: 1}},
	}
	assert.Empty(t, sound.broken())
	broken := lockReport{
		Pairs:     []pairFigures{{Goroutines: 3}},
		HandOvers: []handOverFigures{{Waiters: 2, Processes: 1, Grants: 1, Overlaps: 1234}, {Waiters: 4, Processes: 2}},
	}
	complaint := "2 waiters in 1 processes: two held the lock at once, 1,234 times; " +
		"4 waiters in 2 processes: no waiter got the lock; 3 goroutines: none got a lock"
	assert.Equal(t, complaint, broken.broken())
	var table strings.Builder
	require.NoError(t, broken.writeTable(&table))
	assert.True(t, strings.HasSuffix(table.String(), "\nBROKEN: "+complaint+"\n"), table.String())
}

func TestBenchLockBadInput(t *testing.T) {
	t.Parallel()
	requireRefusals(t, "lock", map[string]badInput{
		"no goroutines":       {exit.Usage, "--goroutines 0: accepted are 1 to 1000", "-g 1,0"},
		"too many goroutines": {exit.Usage, "--goroutines 1001", "-g 1001"},
		"one waiter":          {exit.Usage, "--waiters 1: accepted are 2 to 1000", "-w 1"},
		"too many waiters":    {exit.Usage, "--waiters 1001", "-w 2,1001"},
		"no number":           {exit.Usage, "many", "-w many"},
		"nothing":             {exit.Usage, "nothing to measure", "-g 0 -w 0"},
		"no processes":        {exit.Usage, "--processes 0", "--processes 0"},
		"too many processes":  {exit.Usage, "--processes 65", "--processes 65"},
		"long duration":       {exit.Usage, "--duration 2h", "--duration 2h"},
		"long hold":           {exit.Usage, "--hold 300ms", "--hold 300ms"},
		"negative hold":       {exit.Usage, "negative", "--hold -1ms"},
	})
}

// What outlives a free lock is deleted, the yield window of its last release too.
func TestBenchLockCleansUp(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t, redistest.Config{}).Client(t), commandtest.Bounded(t)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, client.Set(ctx, "redisson_lock_token:{"+name+"}", 16, 0).Err())
		require.NoError(t, client.HSet(ctx, "leasewheel_lock_turns:{"+name+"}", "since", 1).Err())
		require.NoError(t, client.ZAdd(ctx, "leasewheel_lock_line:{"+name+"}", redis.Z{Score: 1, Member: "gap"}).Err())
	}
	l := lockRun{measuredServer: &measuredServer{Server: &connect.Server{Client: client}}}
	require.NoError(t, l.cleanUp(ctx, []string{"a", "b"}))
	left, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	assert.Empty(t, left)
}
