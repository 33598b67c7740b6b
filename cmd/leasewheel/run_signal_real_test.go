//go:build real && unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// What consul lock does when a lock is lost, as in TestRunAvoidsTheBugsOfConsulLock.
func TestRunAvoidsTheLossesOfConsulLock(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	t.Run("2022: a lost lock ends the shell and leaves its command running", func(t *testing.T) {
		stranded(t, env, "2022", func(*commandtest.Process) { forceOpen(t, server, "2022") }, "--ttl", "2s")
	})
	t.Run("9788: the command learns of a loss 90 s late", func(t *testing.T) {
		// Until 9788's server answered; here it never does: the signal comes before the
		// lease runs out. TestRunEndsTheCommandBeforeTheLeaseRunsOut has the times.
		server, env := commandtest.OnServer(t, redistest.Config{})
		p := commandtest.Start(t, env, runLock("9788", sh(untilTerm), "--ttl", "3s", "--grace", "1s")...)
		require.Equal(t, "held", p.Line())
		server.Pause()
		defer server.Resume()
		assert.Equal(t, "terminated", p.Line())
		assert.Equal(t, exit.Lost, p.Wait())
	})
}

// A signal that comes after the command, while leasewheel closes its connections, leaves the command's
// exit code.
func TestRunSignalledAfterItsCommand(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, runLock("job", sh("echo ready; read line; exit 5"), "-v")...)
	require.Equal(t, "ready", p.Line())
	server.Pause() // closing takes as long as a request; a paused one is killed in the end, too
	require.NoError(t, p.Stdin.Close())
	p.AwaitError("the command ended with exit code")
	time.Sleep(100 * time.Millisecond)     // it is closing, for a second
	_ = p.Cmd.Process.Signal(unix.SIGTERM) // fails if it has ended already
	assert.Equal(t, 5, p.Wait())
}
