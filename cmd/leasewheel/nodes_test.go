//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// onQuorum starts three servers and returns them with the environment that names
// them.
func onQuorum(t *testing.T) ([]*redistest.Server, []string) {
	t.Helper()
	var servers []*redistest.Server
	var urls []string
	for range 3 {
		s := redistest.Start(t, redistest.Config{})
		servers, urls = append(servers, s), append(urls, s.URL())
	}
	return servers, []string{redisURLVariable + "=" + strings.Join(urls, " ")}
}

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
	server := redistest.Start(t, redistest.Config{TCP: true})
	other := redistest.Start(t, redistest.Config{})
	_, address := server.Addr()
	_, port, _ := strings.Cut(address, ":")
	here, there := "redis://:"+secret+"@10.0.0.1", "redis://:"+secret+"@10.0.0.2:6379"
	for says, urls := range map[string][]string{
		"2 servers: accepted is one, or an odd number from three up": {here, there},
		"4 servers":                          {here, there, here, there},
		"10.0.0.1 and 10.0.0.1:6379 are one": {here, there, "redis://10.0.0.1:6379/1"},
		"are one server":                     {"redis://127.0.0.1:" + port, "redis://localhost:" + port, other.URL()},
		"URL":                                {here, there, "http://10.0.0.3"},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			var flags []string
			for _, url := range urls {
				flags = append(flags, "--redis", url)
			}
			p := call(t, nil, run("job", sh("echo ran"), flags...)...)
			assert.Equal(t, exitUsage, p.wait())
			p.requireOneLine(says)
		})
	}
	file := filepath.Join(t.TempDir(), "urls")
	require.NoError(t, os.WriteFile(file, []byte(here+"\n"+there+"\n"), 0o600))
	for _, args := range [][]string{
		{"ls"}, {"inspect", "job"}, {"unlock", "--force", "job"}, {"doctor"}, {"demo"}, {"bench", "renewal"}, {"bench", "lock"},
	} {
		p := call(t, nil, append(args, "--redis-file", file)...)
		assert.Equal(t, exitUsage, p.wait(), args)
		p.requireOneLine("2 servers: ")
	}
}

// Each server of a quorum is read separately. A lock is forced open on all of them at
// once: otherwise its holder would get it back on the first ones.
func TestLookupOnAQuorum(t *testing.T) {
	t.Parallel()
	servers, env := onQuorum(t)
	victim := start(t, env, run("job", sh("echo held; cat"))...)
	assert.Equal(t, "held", victim.line())
	commands(t, servers[1].Client(t), fmt.Sprintf("HSET partial %s:1 1", java))
	eventually(t, "on all", func() bool { return holders(t, servers, "job") == 3 })

	table := ask(t, env, exitOK, "ls")
	assert.Regexp(t, `^NAME .* WAITERS +SERVER\n`, table)
	assert.Equal(t, "job\njob\njob\npartial\n", firstColumn(table))
	assert.Contains(t, table, filepath.Base(servers[1].URL()))
	for line := range strings.Lines(ask(t, env, exitOK, "ls", "--json")) {
		requireLockSchema(t, line)
	}
	assert.Equal(t, 3, strings.Count(ask(t, env, exitOK, "inspect", "partial"), "server "))
	decoder := json.NewDecoder(strings.NewReader(ask(t, env, exitOK, "inspect", "--json", "partial")))
	for n := range 3 {
		var report lockReport
		require.NoError(t, decoder.Decode(&report))
		assert.Equal(t, n == 1, report.Held)
		assert.True(t, strings.HasSuffix(servers[n].URL(), report.Server), report.Server)
	}
	ask(t, env, exitNotHeld, "inspect", "nothing")

	forced := ask(t, env, exitOK, "unlock", "--force", "job")
	assert.Equal(t, 3, strings.Count(forced, "taken from"), forced)
	require.NoError(t, victim.stdin.Close())
	assert.Equal(t, exitLost, victim.wait())
	victim.requireReport("lost")
	assert.Equal(t, 2, strings.Count(ask(t, env, exitOK, "unlock", "--force", "partial"), "it was not held"))
	ask(t, env, exitNotHeld, "unlock", "--force", "partial")

	servers[2].Kill()
	commands(t, servers[0].Client(t), fmt.Sprintf("HSET partial %s:1 1", java))
	tells := func(looking *process) {
		t.Helper()
		assert.Equal(t, exitUnavailable, looking.wait())
		looking.requireOneLine("server ")
		assert.Contains(t, looking.stdout.String(), java, "what the others reported")
	}
	list, one := call(t, env, "ls"), call(t, env, "inspect", "partial")
	tells(list)
	tells(one)
	tells(call(t, env, "unlock", "--force", "partial"))
}

// A majority of several servers is enough for the lock: it is acquired and held while one
// of them is down, and released on all of them.
func TestRunOnAQuorum(t *testing.T) {
	t.Parallel()
	servers, env := onQuorum(t)
	holder := start(t, env, run("job", sh("echo $LEASEWHEEL_LOCK_FENCE; read line"))...)
	fence := holder.line()
	assert.NotEqual(t, "0", fence)
	eventually(t, "on all", func() bool { return holders(t, servers, "job") == 3 })

	p := call(t, env, run("job", sh("echo mine"), "-n")...)
	assert.Equal(t, exitNotAcquired, p.wait())
	p.requireOneLine("another owner")

	next := start(t, env, run("job", sh("echo $LEASEWHEEL_LOCK_FENCE"), "-v")...)
	next.awaitError("waiting for lock")
	servers[1].Kill()
	require.NoError(t, holder.stdin.Close())
	assert.Equal(t, 1, holder.wait(), "the end of its input")
	later := next.line()
	assert.Equal(t, 0, next.wait())
	assert.Greater(t, later, fence, "of as many digits")
	assert.Zero(t, holders(t, []*redistest.Server{servers[0], servers[2]}, "job"))
}

// Without a majority the lock cannot be acquired.
func TestRunWithoutAMajority(t *testing.T) {
	t.Parallel()
	servers, env := onQuorum(t)
	servers[0].Kill()
	servers[2].Kill()
	p := call(t, env, run("job", sh("echo ran"), "-n")...)
	assert.Equal(t, exitUnavailable, p.wait())
	p.requireOneLine("2 are needed")
}
