package lock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/memstore"
)

// Nothing is left of a name that is in use no more, in a locker that goes on or in one that was closed.
func TestNothingIsLeftOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		defer store.Close()
		l, err := New(store, Config{})
		require.NoError(t, err)
		defer l.Close()
		queues := func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.queues)
		}
		use := func() {
			for i := range 10 {
				m := l.Mutex(fmt.Sprint(i))
				held, err := m.Lock(t.Context())
				require.NoError(t, err)
				time.AfterFunc(time.Second, func() { assert.NoError(t, held.Unlock(t.Context())) })
				next, err := m.Lock(t.Context())
				require.NoError(t, err)
				require.NoError(t, next.Unlock(t.Context()))
			}
		}
		use()
		require.Positive(t, queues(), "the subscriptions of the last ones linger")
		time.Sleep(2 * lingerFor)
		synctest.Wait()
		require.Zero(t, queues())
		use()
		require.NoError(t, l.Close())
		require.Zero(t, queues())
	})
}
