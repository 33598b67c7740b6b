//go:build real && unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		p := commandtest.Start(t, env, run("9788", sh(untilTerm), "--ttl", "3s", "--grace", "1s")...)
		require.Equal(t, "held", p.Line())
		server.Pause()
		defer server.Resume()
		assert.Equal(t, "terminated", p.Line())
		assert.Equal(t, exit.Lost, p.Wait())
	})
}
