package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// freezing is a store of a process that freezes once, after the nodes have granted a lock
// and before the caller gets the result.
type freezing struct {
	driver.Store
	freeze func() // nil once it has
}

func (f *freezing) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	answer, err := f.Store.Acquire(ctx, h)
	if freeze := f.freeze; freeze != nil && err == nil {
		f.freeze = nil
		freeze()
	}
	return answer, err
}

// A lock that is granted after a freeze of the process, in which another owner had it,
// has a larger token than the other.
func TestTokensGrowAcrossAFreeze(t *testing.T) {
	const ttl = time.Second
	for _, skew := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			all, stores := booths(5)
			all[0].skew = skew
			theirs := locker(t, over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{TTL: ttl})
			var between int64
			ours := locker(t, &freezing{Store: over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), freeze: func() {
				time.Sleep(2 * ttl)
				lease, err := theirs.Mutex("a").Lock(t.Context())
				require.NoError(t, err)
				between = lease.Token()
				require.NoError(t, lease.Unlock(t.Context()))
			}}, lock.Config{TTL: ttl})
			lease, err := ours.Mutex("a").Lock(t.Context())
			require.NoError(t, err)
			require.Positive(t, between)
			assert.Greater(t, lease.Token(), between)
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}
