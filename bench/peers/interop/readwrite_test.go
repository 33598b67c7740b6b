//go:build real

package interop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadersOfBothSides checks that readers of both sides, with different leases, keep
// writers out for as long as either holds.
func TestReadersOfBothSides(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		// Java's watchdog renews a hash to 2 s every 0.7 s, ours to 12 s every 4 s.
		java := open(t, redisson(t, version), s.address, "watchdog=2000")
		wheel := open(t, golang(t), s.address, "watchdog=12000")
		for _, row := range []struct{ name string }{{"a read lease of ours outlives Java's reader"}} {
			t.Run(row.name, func(t *testing.T) {
				record(t, "6 read-write: "+row.name, java.name, "read-write", both, nil)
				name := fresh("readers")
				w := wheel.of(t)
				j := java.of(t)
				require.NotEqual(t, "0", w.do("a", "lock", "read", name, never, renewed))
				require.NotEqual(t, "0", j.do("a", "lock", "read", name, never, renewed))
				// The writer comes after Java's watchdog has run, ours has detected that, and
				// Java's reader is gone.
				time.Sleep(6 * time.Second)
				j.do("a", "unlock", "read", name)
				left := s.keys.PTTL(t.Context(), name).Val()
				assert.Equal(t, "0", j.do("b", "lock", "write", name, 4000, renewed), "a writer beside a reader of ours, whose hash had %v left", left)
				w.do("a", "unlock", "read", name)
			})
		}
	})
}

// TestJavasWatchdogLeavesOurReadLease kills Java after its watchdog has shortened the hash of
// both readers to its own lease. Ours has a lease of 12 s and is then renewed sooner.
func TestJavasWatchdogLeavesOurReadLease(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java := open(t, ownRedisson(t, version), s.address, "watchdog=2500")
		wheel := open(t, golang(t), s.address, "watchdog=12000")
		other := open(t, golang(t), s.address)
		record(t, "6 read-write: Java's reader is killed, and ours has a longer lease", java.name, "read-write", theirs, nil)
		name := fresh("shortened")
		require.NotEqual(t, "0", java.do("a", "lock", "read", name, never, renewed))
		require.NotEqual(t, "0", wheel.do("a", "lock", "read", name, never, renewed))
		time.Sleep(6 * time.Second) // Java's watchdog has set the hash to 2.5 s, and ours has detected it
		java.kill()
		for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			require.Equal(t, "0", other.do("b", "lock", "write", name, never, renewed), "a writer beside a reader of ours")
		}
		wheel.do("a", "unlock", "read", name)
		require.NotEqual(t, "0", other.do("b", "lock", "write", name, 20_000, renewed))
		other.do("b", "unlock", "write", name)
	})
}

// TestNoWakeUpIsMissedByAThreadAboutToBlock releases read-write locks when Java's thread was
// refused and has subscribed, but may not wait yet. After a missed message it would wait for
// the 30 s of the lease.
func TestNoWakeUpIsMissedByAThreadAboutToBlock(t *testing.T) {
	const times = 60
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		for _, k := range locks[2:5] {
			t.Run(k.kind, func(t *testing.T) {
				j, w := java.of(t), wheel.of(t)
				var slowest time.Duration
				record(t, fmt.Sprintf("6 read-write: %d wake-ups at the worst instant", times), java.name, k.kind, ours, func() string {
					return fmt.Sprintf("slowest %v", slowest.Round(time.Millisecond))
				})
				for i := range times {
					name := fresh("instant")
					require.NotEqual(t, "0", w.do("a", "lock", k.holder, name, never, renewed))
					granted := j.begin("b", "lock", k.waiter, name, forever, renewed)
					s.awaitListeners(t, name, 1)
					time.Sleep(time.Duration(i%12) * 250 * time.Microsecond)
					released := time.Now()
					w.do("a", "unlock", k.holder, name)
					r := await(t, granted)
					require.NoError(t, r.err)
					slowest = max(slowest, r.at.Sub(released))
					j.do("b", "unlock", k.waiter, name)
				}
				assert.Less(t, slowest, 10*time.Second, "Java's thread was not woken")
			})
		}
	})
}

// TestDeadReaderDelaysNoWriter kills a reader of each side. Writers of the other side are
// granted the lock when its lease is over.
func TestDeadReaderDelaysNoWriter(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		for _, dead := range []string{"Java", "Go"} {
			t.Run(dead, func(t *testing.T) {
				t.Parallel()
				s := single(t)
				java := open(t, ownRedisson(t, version), s.address, "watchdog=3000")
				wheel := open(t, golang(t), s.address, "watchdog=3000")
				dying, writer, direction := java, wheel, theirs
				if dead == "Go" {
					dying, writer, direction = wheel, java, ours
				}
				record(t, "6 read-write: a dead reader", java.name, "read-write", direction, nil)
				name := fresh("dead")
				require.NotEqual(t, "0", dying.do("a", "lock", "read", name, never, renewed))
				require.NotEqual(t, "0", writer.do("a", "lock", "read", name, never, renewed))
				dying.kill()
				writer.do("a", "unlock", "read", name)
				require.NotEqual(t, "0", writer.do("b", "lock", "write", name, 20_000, renewed), "its lease is of 3 s")
				writer.do("b", "unlock", "write", name)
			})
		}
	})
}

// TestReaderOfSeveralLocks holds read locks by Java for longer than its watchdog's lease: three by
// one client, and one twice. From 3.44 until 4.4 its watchdog renews the holds of the first alone, and
// the hashes of all.
func TestReaderOfSeveralLocks(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		for what, holds := range map[string][]string{"three locks": {"a", "b", "c"}, "a lock twice": {"a", "a"}} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				s := single(t)
				java, wheel := open(t, redisson(t, version), s.address, "watchdog=3000"), open(t, golang(t), s.address)
				record(t, "6 read-write: a client of Java reads under "+what, java.name, "read-write", theirs, nil)
				for _, name := range holds {
					require.NotEqual(t, "0", java.do("a", "lock", "read", name, never, renewed))
				}
				time.Sleep(7 * time.Second) // a hold that is not renewed has expired
				for _, name := range holds {
					assert.Equal(t, "0", wheel.do("b", "lock", "write", name, never, renewed), "a writer beside a reader of Java")
				}
				for _, name := range holds {
					_, _ = java.try("a", "unlock", "read", name) // it frees a lock whose holds have ended at once
				}
				for _, name := range slices.Compact(holds) {
					require.NotEqual(t, "0", wheel.do("b", "lock", "write", name, never, renewed), "free")
					wheel.do("b", "unlock", "write", name)
				}
			})
		}
	})
}
