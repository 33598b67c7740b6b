//go:build real && linux

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// No descendant of a command that is ended outlives the lock, even if it has a session
// of its own and ignores SIGTERM.
func TestRunEndsDescendantsThatLeftTheGroup(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	for _, action := range []string{"term", "kill"} {
		t.Run(action, func(t *testing.T) {
			p, pids := startFamily(t, env, "--ttl", "2s", "--grace", "200ms", "--on-lost", action)
			forceOpen(t, server, "job")
			assert.Equal(t, exit.Lost, p.Wait())
			assert.True(t, allGone(pids), "a descendant outlived leasewheel")
		})
	}
}
