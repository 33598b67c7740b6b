//go:build real && unix

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// The next renewal finds the lock gone: the command gets its signal within half a TTL.
func TestRunSignalsTheCommandOnALoss(t *testing.T) {
	server, env := commandtest.OnServer(t, redistest.Config{})
	const ttl = 4 * time.Second
	p := commandtest.Start(t, env, runLock("job", sh(untilTerm), "--ttl", ttl.String(), "--grace", "1s")...)
	require.Equal(t, "held", p.Line())
	deleted := time.Now()
	forceOpen(t, server, "job")
	assert.Equal(t, "terminated", p.Line())
	assert.Less(t, time.Since(deleted), ttl/2)
	assert.Equal(t, exit.Lost, p.Wait())
	p.RequireReport("lost, deleted; sending SIGTERM")
}

// A server that does not answer cannot report a loss. The command gets its signal in
// time: all of its group is gone before another client can acquire the lock.
func TestRunEndsTheCommandBeforeTheLeaseRunsOut(t *testing.T) {
	const ttl = 3 * time.Second
	for name, test := range map[string]struct {
		script string
		flags  []string
		says   string
	}{
		"willing": {untilTerm, nil, "SIGTERM"},
		"deaf":    {deaf, []string{"--grace", "300ms"}, "SIGTERM"},
		"killed":  {deaf, []string{"--on-lost", "kill"}, "SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, env := commandtest.OnServer(t, redistest.Config{})
			p := commandtest.Start(t, env, runLock("job", sh("echo $$;"+test.script), append(test.flags, "--ttl", ttl.String())...)...)
			pid := p.PIDLine()
			p.Line()
			server.Pause()
			defer server.Resume()
			muted := time.Now() // no renewal that is sent later will be answered
			alive := muted      // the latest instant: a stall of this process adds nothing to it
			commandtest.Eventually(t, "gone", func() bool {
				now := time.Now()
				if commandtest.Gone(pid) {
					return true
				}
				alive = now
				return false
			})
			assert.Less(t, alive.Sub(muted), ttl)
			p.AwaitError("not renewed, and about to run out; sending " + test.says)
			assert.Equal(t, exit.Lost, p.Wait())
		})
	}
}

// A holder that was frozen for longer than its lease ends the command as soon as it
// continues, and its exit code reports the loss.
func TestRunFrozenHolder(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh(untilTerm), "--ttl", "3s", "--grace", "1s")...)
	require.Equal(t, "held", p.Line())
	p.Signal(unix.SIGSTOP)
	// A waiter gets the lock once the frozen holder's lease has run out.
	next := commandtest.Start(t, env, runLock("job", sh("echo mine"))...)
	assert.Equal(t, "mine", next.Line())
	assert.Equal(t, 0, next.Wait())
	p.Signal(unix.SIGCONT)
	went := time.Now()
	assert.Equal(t, "terminated", p.Line())
	assert.Less(t, time.Since(went), 2*time.Second)
	assert.Equal(t, exit.Lost, p.Wait())
	p.RequireReport("lost, ")
}

// The same, but the command has ended meanwhile: it may have run without the lock.
func TestRunFrozenHolderWhoseCommandEnds(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh("echo held; read line; exit 0"), "--ttl", "700ms")...)
	require.Equal(t, "held", p.Line())
	p.Signal(unix.SIGSTOP)
	next := commandtest.Start(t, env, runLock("job", sh("echo mine"))...)
	assert.Equal(t, "mine", next.Line())
	require.NoError(t, p.Stdin.Close())
	p.Signal(unix.SIGCONT)
	assert.Equal(t, exit.Lost, p.Wait())
	p.RequireReport(`lock "job"`)
}

// The server loses its scripts and drops its connections without an effect on the
// command.
func TestRunSurvivesATroubledServer(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client, ctx := server.Client(t), commandtest.Bounded(t)
	p := holder(t, env, "--ttl", "2s")
	for range 3 {
		require.NoError(t, client.ScriptFlush(ctx).Err())
		require.NoError(t, client.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
		old, err := client.PTTL(ctx, "job").Result()
		require.NoError(t, err)
		commandtest.Eventually(t, "renewed", func() bool {
			left, err := client.PTTL(ctx, "job").Result()
			require.NoError(t, err)
			renewed := left > old
			old = left
			return renewed
		})
	}
	require.NoError(t, p.Stdin.Close())
	assert.Equal(t, 0, p.Wait())
}

// A command's processes: a shell's child that ends on SIGTERM, and one that ignores it.
func TestRunEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, child := range map[string]string{
		"willing": "sleep 60",
		"deaf":    "trap '' TERM; sleep 60",
	} {
		t.Run(name, func(t *testing.T) {
			server, env := commandtest.OnServer(t, redistest.Config{})
			script := fmt.Sprintf("sh -c %q & echo $!; wait", child)
			p := commandtest.Start(t, env, runLock("job", sh(script), "--ttl", "2s", "--grace", "200ms")...)
			pid := p.PIDLine()
			forceOpen(t, server, "job")
			assert.Equal(t, exit.Lost, p.Wait())
			assert.True(t, commandtest.Gone(pid), "the shell's child outlived leasewheel")
		})
	}
}

// untilTerm is a script that prints a line when it holds the lock and when it gets SIGTERM. It
// ends by itself. It does not fork meanwhile: a shell whose vfork is stopped cannot be stopped itself.
const untilTerm = `sleep 3600 & trap 'echo terminated; exit 0' TERM; echo held; wait`
