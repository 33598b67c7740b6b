//go:build real && unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A majority of several servers is enough for the lock: it is acquired and held while one
// of them is down, and released on all of them.
func TestRunOnAQuorum(t *testing.T) {
	t.Parallel()
	servers, env := onQuorum(t)
	holder := start(t, env, run("job", sh("echo $LEASEWHEEL_LOCK_FENCE; read line"), "--ttl", "2s")...)
	fence := holder.line()
	assert.NotEqual(t, "0", fence)
	eventually(t, "on all", func() bool { return holders(t, servers, "job") == 3 })

	p := call(t, env, run("job", sh("echo mine"), "-n")...)
	assert.Equal(t, exitNotAcquired, p.wait())
	p.requireOneLine("another owner")

	next := start(t, env, run("job", sh("echo $LEASEWHEEL_LOCK_FENCE"), "-v")...)
	next.awaitError("waiting for lock")
	servers[1].Kill()
	time.Sleep(2 * time.Second) // a TTL, at whose end the lock would be lost
	select {
	case <-holder.exited:
		t.Fatal("the failure of one server ended the command")
	default:
	}
	require.NoError(t, holder.stdin.Close())
	assert.Equal(t, 1, holder.wait(), "the end of its input")
	later := next.line()
	assert.Equal(t, 0, next.wait())
	assert.Greater(t, later, fence, "of as many digits")
	assert.Zero(t, holders(t, []*redistest.Server{servers[0], servers[2]}, "job"))
}

// Without its majority the lock is lost in time, and cannot be acquired.
func TestRunLosesItsMajority(t *testing.T) {
	t.Parallel()
	servers, env := onQuorum(t)
	const ttl = 3 * time.Second
	p := start(t, env, run("job", sh(untilTerm), "--ttl", ttl.String())...)
	require.Equal(t, "held", p.line())
	servers[0].Kill()
	servers[2].Pause()
	stopped := time.Now()
	assert.Equal(t, "terminated", p.line())
	assert.Equal(t, exitLost, p.wait())
	assert.Less(t, time.Since(stopped), ttl+5*time.Second)
	assert.Contains(t, p.stderr.String(), "about to run out; sending SIGTERM")

	p = call(t, env, run("job", sh("echo ran"), "-n")...)
	assert.Equal(t, exitUnavailable, p.wait())
	p.requireOneLine("2 are needed")
	assert.Empty(t, p.stdout.String())
}
