//go:build real && unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// What consul lock does when a lock is lost, as in TestRunAvoidsTheBugsOfConsulLock.
func TestRunAvoidsTheLossesOfConsulLock(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	t.Run("2022: a lost lock ends the shell and leaves its command running", func(t *testing.T) {
		stranded(t, env, "2022", func(*process) { forceOpen(t, server, "2022") }, "--ttl", "2s")
	})
	t.Run("9788: the command learns of a loss 90 s late", func(t *testing.T) {
		// Until 9788's server answered; here it never does: the signal comes before the
		// lease runs out. TestRunEndsTheCommandBeforeTheLeaseRunsOut has the times.
		server, env := onServer(t, redistest.Config{})
		p := start(t, env, run("9788", sh(untilTerm), "--ttl", "3s", "--grace", "1s")...)
		require.Equal(t, "held", p.line())
		server.Pause()
		defer server.Resume()
		assert.Equal(t, "terminated", p.line())
		assert.Equal(t, exitLost, p.wait())
	})
}
