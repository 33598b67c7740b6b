package quorum_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/renewal"
)

// alarming is a node that notices losses.
type alarming struct {
	*booth
	lost func() // nil once it is stopped
}

var _ renewal.Alarm = (*alarming)(nil)

func (a *alarming) OnLoss(lost func()) (stop func()) {
	a.lost = lost
	return func() { a.lost = nil }
}

// A loss that nodes notice is mended at once, and reported at once if a majority has lost the lock,
// not at the next renewal.
func TestNodesNoticeALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		var noticing []*alarming
		for i, b := range all[:3] {
			noticing = append(noticing, &alarming{booth: b})
			stores[i] = noticing[i]
		}
		store, err := quorum.New(stores, quorum.Config{})
		require.NoError(t, err)
		locker, err := lock.New(store, lock.Config{TTL: 24 * time.Hour})
		require.NoError(t, err)
		defer func() {
			assert.NoError(t, locker.Close())
			assert.NoError(t, store.Close())
			for _, n := range noticing {
				assert.Nil(t, n.lost)
			}
			time.Sleep(24 * time.Hour)
		}()
		for _, n := range noticing {
			require.NotNil(t, n.lost)
		}
		lease, err := locker.Mutex("orders").Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)

		noticing[0].lose()
		noticing[0].lost()
		time.Sleep(time.Minute)
		assert.NotEmpty(t, all[0].holder("orders"), "restored")
		require.True(t, lease.Valid())

		noticed := time.Now()
		for _, n := range noticing {
			n.lose()
		}
		noticing[1].lost()
		<-lease.Lost()
		require.Zero(t, time.Since(noticed).Truncate(time.Minute))
		var lost *lock.LostError
		require.ErrorAs(t, lease.Err(), &lost)
		require.Equal(t, renewal.Deleted, lost.Cause)
	})
}

// A node whose store ends the goroutine, as a test's double does by FailNow, has not answered: what
// waits for its late reply does not wait for ever.
func TestGoexitOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		all[2].set(func(string, *driver.Hold) mishap { return mishap{returning: runtime.Goexit} })
		store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
		require.NoError(t, err)
		h := hold("me:1")
		answer, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, answer.Verdict)
		all[1].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		_, err = store.Release(t.Context(), h)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		var failed *quorum.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, quorum.Failed, failed.Votes[2].Said)
		require.NoError(t, store.Close())
	})
}
