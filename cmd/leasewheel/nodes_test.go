//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/look"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// holders returns on how many of the servers the lock is held.
func holders(t *testing.T, servers []*redistest.Server, name string) (count int64) {
	t.Helper()
	for _, s := range servers {
		count += s.Client(t).Exists(t.Context(), name).Val()
	}
	return count
}

// Servers that make no quorum are refused before anything is done, in one line.
func TestNodesThatMakeNoQuorum(t *testing.T) {
	t.Parallel()
	here, there := "redis://:"+commandtest.Secret+"@10.0.0.1", "redis://:"+commandtest.Secret+"@10.0.0.2:6379"
	for says, urls := range map[string][]string{
		"2 servers: accepted is one, or an odd number from three up": {here, there},
		"4 servers":                          {here, there, here, there},
		"10.0.0.1 and 10.0.0.1:6379 are one": {here, there, "redis://10.0.0.1:6379/1"},
		"URL":                                {here, there, "http://10.0.0.3"},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			var flags []string
			for _, url := range urls {
				flags = append(flags, "--store", url)
			}
			p := commandtest.Call(t, nil, runLock("job", sh("echo ran"), flags...)...)
			assert.Equal(t, exit.Usage, p.Wait())
			p.RequireOneLine(says)
		})
	}
	file := filepath.Join(t.TempDir(), "urls")
	require.NoError(t, os.WriteFile(file, []byte(here+"\n"+there+"\n"), 0o600))
	for _, args := range [][]string{
		{"ls"}, {"inspect", "job"}, {"unlock", "--force", "job"}, {"doctor"}, {"demo"}, {"bench", "renewal"}, {"bench", "lock"},
	} {
		p := commandtest.Call(t, nil, append(args, "--store-file", file)...)
		assert.Equal(t, exit.Usage, p.Wait(), args)
		p.RequireOneLine("2 servers: ")
	}
}

// Each server of a quorum is read separately. A lock is forced open on all of them at
// once: otherwise its holder would get it back on the first ones.
func TestLookupOnAQuorum(t *testing.T) {
	t.Parallel()
	servers, env := commandtest.OnQuorum(t)
	victim := commandtest.Start(t, env, runLock("job", sh("echo held; cat"), "--ttl", "30s")...)
	assert.Equal(t, "held", victim.Line())
	commands(t, servers[1].Client(t), fmt.Sprintf("HSET partial %s:1 1", java))
	commandtest.Eventually(t, "on all", func() bool { return holders(t, servers, "job") == 3 })

	table := commandtest.Ask(t, env, exit.OK, "ls")
	assert.Regexp(t, `^NAME .* WAITERS +SERVER\n`, table)
	assert.Equal(t, "job\njob\njob\npartial\n", commandtest.FirstColumn(table))
	assert.Contains(t, table, filepath.Base(servers[1].URL()))
	for line := range strings.Lines(commandtest.Ask(t, env, exit.OK, "ls", "--json")) {
		requireLockSchema(t, line)
	}
	assert.Equal(t, 3, strings.Count(commandtest.Ask(t, env, exit.OK, "inspect", "partial"), "server "))
	decoder := json.NewDecoder(strings.NewReader(commandtest.Ask(t, env, exit.OK, "inspect", "--json", "partial")))
	for n := range 3 {
		var report look.LockReport
		require.NoError(t, decoder.Decode(&report))
		assert.Equal(t, n == 1, report.Held)
		assert.True(t, strings.HasSuffix(servers[n].URL(), report.Server), report.Server)
	}
	commandtest.Ask(t, env, exit.NotHeld, "inspect", "nothing")

	forced := commandtest.Ask(t, env, exit.OK, "unlock", "--force", "job")
	assert.Equal(t, 3, strings.Count(forced, "taken from"), forced)
	// Its next renewal finds the loss. A release without an answer would leave it open.
	assert.Equal(t, exit.Lost, victim.Wait())
	victim.RequireReport("lost")
	assert.Equal(t, 2, strings.Count(commandtest.Ask(t, env, exit.OK, "unlock", "--force", "partial"), "it was not held"))
	commandtest.Ask(t, env, exit.NotHeld, "unlock", "--force", "partial")

	servers[2].Kill()
	commands(t, servers[0].Client(t), fmt.Sprintf("HSET partial %s:1 1", java))
	tells := func(looking *commandtest.Process) {
		t.Helper()
		assert.Equal(t, exit.Unavailable, looking.Wait())
		looking.RequireOneLine("server ")
		assert.Contains(t, looking.Stdout.String(), java, "what the others reported")
	}
	list, one := commandtest.Call(t, env, "ls"), commandtest.Call(t, env, "inspect", "partial")
	tells(list)
	tells(one)
	tells(commandtest.Call(t, env, "unlock", "--force", "partial"))
}

// A majority of several servers is enough for the lock: it is acquired and held while one
// of them is down, and released on all of them.
func TestRunOnAQuorum(t *testing.T) {
	t.Parallel()
	servers, env := commandtest.OnQuorum(t)
	holder := commandtest.Start(t, env, runLock("job", sh("echo $LEASEWHEEL_LOCK_FENCE; read line"))...)
	fence := holder.Line()
	assert.NotEqual(t, "0", fence)
	commandtest.Eventually(t, "on a majority", func() bool { return holders(t, servers, "job") >= 2 })
	down := slices.IndexFunc(servers, func(s *redistest.Server) bool { return holders(t, []*redistest.Server{s}, "job") == 0 })
	down = max(down, 0) // one that the machine has held up gets the lock at the next renewal

	p := commandtest.Call(t, env, runLock("job", sh("echo mine"), "-n")...)
	assert.Equal(t, exit.NotAcquired, p.Wait())
	p.RequireOneLine("another owner")

	next := commandtest.Start(t, env, runLock("job", sh("echo $LEASEWHEEL_LOCK_FENCE"), "-v")...)
	next.AwaitError("waiting for lock")
	servers[down].Kill()
	require.NoError(t, holder.Stdin.Close())
	assert.Equal(t, 1, holder.Wait(), "the end of its input")
	later := next.Line()
	assert.Equal(t, 0, next.Wait())
	assert.Greater(t, later, fence, "of as many digits")
	assert.Zero(t, holders(t, slices.Delete(servers, down, down+1), "job"))
}

// Without a majority the lock cannot be acquired.
func TestRunWithoutAMajority(t *testing.T) {
	t.Parallel()
	servers, env := commandtest.OnQuorum(t)
	servers[0].Kill()
	servers[2].Kill()
	p := commandtest.Call(t, env, runLock("job", sh("echo ran"), "-n")...)
	assert.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("2 are needed")
}
