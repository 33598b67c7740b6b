package etcdstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// die ends a store as the end of its process does: its etcd leases end, and it makes no more requests.
func die(t *testing.T, s *Store) {
	t.Helper()
	s.end(errClosed)
	s.running.Wait()
	revokeAll(t, s)
}

// revokeAll ends a store's etcd leases.
func revokeAll(t *testing.T, s *Store) {
	t.Helper()
	s.leases.mu.Lock()
	ids := sortedKeys(s.leases.all)
	s.leases.mu.Unlock()
	for _, id := range ids {
		if _, err := s.client.Revoke(t.Context(), id); !errors.Is(err, rpctypes.ErrLeaseNotFound) { // the client repeats it
			require.NoError(t, err)
		}
	}
}

// What a process leaves in one name, by leases that have ended, is released in one transaction, whatever
// it is and however many waiters it had.
func TestAllThatAProcessHadIsReleased(t *testing.T) {
	t.Parallel()
	inQueue := driver.Queue{Keep: time.Hour}
	blocking := driver.ReadWrite{BlockReaders: time.Hour}
	for what, kinds := range map[string][]driver.Hold{
		"a fair lock and a queue longer than etcd's transactions": append([]driver.Hold{{Kind: driver.KindFair}},
			make([]driver.Hold, maxOps+8)...),
		"a reader and a waiting writer": {{Kind: driver.KindRead}, {Kind: driver.KindWrite, ReadWrite: blocking}},
	} {
		t.Run(what, func(t *testing.T) {
			s := open(t)
			others := beside(t, s)
			for i, h := range kinds {
				if h.Kind == driver.KindMutex {
					h.Kind, h.Queue = driver.KindFair, inQueue
				}
				h.Name, h.Owner, h.Count, h.TTL = "a", fmt.Sprintf("dead:%04d", i), 1, time.Hour
				var a driver.Answer
				repeated(t, func() (err error) {
					a, err = s.Acquire(t.Context(), &h)
					return err
				})
				require.Equal(t, i == 0, a.Verdict == driver.Granted)
			}
			die(t, s)
			h := kinds[0]
			h.Name, h.Owner, h.Count, h.TTL = "a", "other:1", 1, time.Hour
			acquire(t, others, &h)
		})
	}
}
