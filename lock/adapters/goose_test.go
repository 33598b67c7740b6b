package adapters_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// goose lets the next call of a provider begin before it unlocks for the last one. If that one's
// lease was lost, its Unlock does not release the lease of the next.
func TestGooseUnlocksItsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := locktest.StartMemory(t)
		locker := newMigrationLocker(memory.Locker(t, lock.Config{}).Mutex("migrations"))
		require.NoError(t, locker.Lock(t.Context(), nil))
		memory.DeleteAll()
		time.Sleep(time.Minute)
		require.NoError(t, locker.Lock(t.Context(), nil), "the next call")
		require.ErrorIs(t, locker.Unlock(t.Context(), nil), lock.ErrLost)
		_, err := memory.Locker(t, lock.Config{}).Mutex("migrations").TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrNotAcquired, "broken promise: the next call's lease is released")
		require.NoError(t, locker.Unlock(t.Context(), nil))
	})
}
