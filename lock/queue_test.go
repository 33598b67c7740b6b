package lock_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// A waiter that gives up leaves its place in the store's wait queue. The next waiter of
// its process takes its own place, even if it gives up soon.
func TestImpatientWaitersGetTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		patient := []*lock.Locker{server.Locker(t, lock.Config{}), server.Locker(t, lock.Config{})}
		impatient := server.Locker(t, lock.Config{})
		held := mustLock(t, patient[0].Mutex("a"))
		begin := time.Now()
		const all = 10 * time.Second
		var work sync.WaitGroup
		var got atomic.Int64
		for i := range 2 {
			work.Go(func() {
				time.Sleep(time.Duration(i) * 500 * time.Millisecond)
				for time.Since(begin) < all {
					lease, err := impatient.Mutex("a").MaxWait(time.Second).Lock(t.Context())
					if err == nil {
						got.Add(1)
						assert.NoError(t, lease.Unlock(t.Context()))
					}
				}
			})
		}
		for _, l := range patient {
			work.Go(func() {
				for time.Since(begin) < all {
					lease, err := l.Mutex("a").Lock(t.Context())
					assert.NoError(t, err)
					time.Sleep(200 * time.Millisecond)
					assert.NoError(t, lease.Unlock(t.Context()))
				}
			})
		}
		time.Sleep(3 * time.Second) // all give up meanwhile
		assert.NoError(t, held.Unlock(t.Context()))
		work.Wait()
		assert.Greater(t, got.Load(), int64(12), "of 18 turns or so")
	})
}

// A waiter that becomes the head behind a grant to another one of its process sends no request:
// the lock is held, and its release sends a message.
func TestHeadBehindAGrantSendsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, m, store := heldElsewhere(t)
		first, second := await(t, m), await(t, m)
		before := store.asked()
		unlock(t, held)
		lease := <-first
		time.Sleep(time.Minute)
		assert.Equal(t, before+1, store.asked(), "that of the first")
		unlock(t, lease)
		unlock(t, <-second)
	})
}
