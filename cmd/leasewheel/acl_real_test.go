//go:build real && unix

package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
)

// The users of the sentinels and of their servers have the rights that a client needs through a
// failover, whose steps have a limit of 2 s each.
func TestLeastUserThroughAFailover(t *testing.T) {
	t.Parallel()
	set := startGuided(t, 0)
	locker, _ := newTestLocker(t, set.newClient())
	lease, err := locker.Mutex("orders:42").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
	set.Failover(t)
	commandtest.Eventually(t, "locked at the new master", func() bool {
		return locker.Mutex("orders:42").Do(commandtest.Bounded(t), func(context.Context) error { return nil }) == nil
	})
	set.requireNoneRefused(t)
}
