//go:build real && unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// longOutage is longer than any number of retries of a single request takes.
const longOutage = 7 * time.Second

// An outage of the server that is shorter than the wait is part of the wait: before the
// lock is requested, and while run waits for it.
func TestRunWaitsThroughAnOutage(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"for a time": {"-w", "60s"}, "for ever": nil} {
		t.Run("dead at first, "+name, func(t *testing.T) {
			t.Parallel()
			server, env := onServer(t, redistest.Config{})
			server.Kill()
			p := start(t, env, run("job", sh("echo ran"), flags...)...)
			time.Sleep(longOutage)
			server.Restart(t)
			assert.Equal(t, "ran", p.line())
			assert.Equal(t, 0, p.wait())
		})
		t.Run("dead while waiting, "+name, func(t *testing.T) {
			t.Parallel()
			server, env := onServer(t, redistest.Config{AOF: true})
			held := holder(t, env, "--ttl", "1h")
			p := start(t, env, run("job", sh("echo ran"), append([]string{"-v"}, flags...)...)...)
			p.awaitError("waiting for lock")
			server.Kill()
			time.Sleep(longOutage)
			server.Restart(t)
			require.NoError(t, held.stdin.Close())
			assert.Equal(t, 0, held.wait())
			assert.Equal(t, "ran", p.line())
			assert.Equal(t, 0, p.wait())
		})
	}
}

// An outage that lasts is reported once, and the exit code of a wait that it outlives
// is not that of a conflict.
func TestRunGivesUpAfterItsWait(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	server.Kill()
	begin := time.Now()
	p := start(t, env, run("job", sh("echo ran"), "-w", "12s", "-E", "0")...)
	p.awaitError("; waiting for it")
	assert.Equal(t, exitUnavailable, p.wait())
	assert.Greater(t, time.Since(begin), 10*time.Second)
	assert.Empty(t, p.stdout.String())
}
