//go:build real

package interop

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAsyncAndReactiveLocks inspects and force-releases locks that Java acquires by its
// asynchronous and reactive API, with owners of its own choice.
func TestAsyncAndReactiveLocks(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		for _, api := range []string{"async", "reactive"} {
			t.Run(api, func(t *testing.T) {
				record(t, "12 "+api+" API: exclusion, Inspect, forced release", java.name, "mutex", theirs, nil)
				j, w := java.of(t), wheel.of(t)
				take := func(name string, owner int64) string {
					if api == "async" {
						return j.do("a", "asynclock", "mutex", name, 0, 60_000, owner)
					}
					return j.do("a", "reactivelock", name, 0, 60_000, owner)
				}
				for _, owner := range []int64{0, -7, 1 << 40} {
					name := fresh("api")
					require.Equal(t, "1", take(name, owner))
					assert.Equal(t, "0", w.do("b", "lock", "mutex", name, never, renewed))
					told := w.do("b", "inspect", name)
					assert.True(t, strings.HasPrefix(told, "mutex ") && strings.HasSuffix(told, "=1"), told)
					assert.Equal(t, "1", w.do("b", "force", "mutex", name))
					require.NotEqual(t, "0", w.do("b", "lock", "mutex", name, never, renewed))
					w.do("b", "unlock", "mutex", name)
				}
			})
		}
	})
}

// TestLocksOfTransactions inspects and force-releases a lock that a transaction of Redisson
// holds.
func TestLocksOfTransactions(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		record(t, "12 transaction: exclusion, Inspect, forced release", java.name, "mutex", theirs, nil)
		name := fresh("map")
		java.do("a", "begin", name, name)
		keys, err := s.keys.Keys(t.Context(), "*"+name+"*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 1, "the lock of a key of the map")
		held := keys[0]
		assert.Equal(t, "0", wheel.do("b", "lock", "mutex", held, never, renewed))
		told := wheel.do("b", "inspect", held)
		assert.True(t, strings.HasPrefix(told, "mutex ") && strings.HasSuffix(told, "=1"), told)
		assert.Equal(t, "1", wheel.do("b", "force", "mutex", held))
		require.NotEqual(t, "0", wheel.do("b", "lock", "mutex", held, never, renewed))
		wheel.do("b", "unlock", "mutex", held)
	})
}

// TestKindsOnTheSameWire checks Redisson's locks with the wire format of a mutex: Java holds
// one and leasewheel waits, and the other way round.
func TestKindsOnTheSameWire(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		for _, kind := range []struct{ name, since string }{{"spin", "3.16.0"}, {"nonreentrant", "4.4.0"}} {
			if !atLeast(version, kind.since) {
				continue
			}
			t.Run(kind.name, func(t *testing.T) {
				record(t, "1 exclusion, expiry: "+kind.name, java.name, "mutex", both, nil)
				j, w := java.of(t), wheel.of(t)
				name := fresh(kind.name)
				require.NotEqual(t, "0", j.do("a", "lock", kind.name, name, never, renewed))
				assert.Equal(t, "0", w.do("b", "lock", "mutex", name, never, renewed))
				j.do("a", "unlock", kind.name, name)
				require.NotEqual(t, "0", w.do("b", "lock", "mutex", name, 30_000, renewed))
				assert.Equal(t, "0", j.do("a", "lock", kind.name, name, never, renewed))
				w.do("b", "unlock", "mutex", name)
				require.NotEqual(t, "0", j.do("a", "lock", kind.name, name, 20_000, renewed))
				j.do("a", "unlock", kind.name, name)
			})
		}
	})
}
