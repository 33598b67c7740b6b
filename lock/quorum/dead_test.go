package quorum_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// TryLock gets a lock that is free at all nodes behind the dead waiters that each still has, as
// of a fleet that used one node alone before a move.
func TestTryLockBehindManyDead(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string][3]int{
		"at all nodes":     {1000, 1000, 1000},
		"at a majority":    {1000, 1000, 0},
		"more at each one": {250, 550, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clients []redis.UniversalClient
			for _, n := range dead {
				client := redistest.Start(t, redistest.Config{}).Client(t)
				clients = append(clients, client)
				require.NoError(t, client.Eval(t.Context(), `
					for i = 1, ARGV[1] do
						redis.call('zadd', KEYS[1], i, string.format('285475da-9152-4c83-822a-67ee2f116a79:%d 3000 0 secret', i))
					end
					return 1`, []string{"leasewheel_lock_line:{a}"}, n).Err())
			}
			l := locker(t, assemble(t, patient, clients...), lock.Config{TTL: time.Hour, RequestTimeout: time.Minute})
			lease, err := l.Mutex("a").TryLock(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}
