//go:build real

package interop

import (
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// TestKilledSubscriptions breaks the subscription connections of either side. Waiters are
// woken all the same.
func TestKilledSubscriptions(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		for _, d := range directions(java, wheel) {
			t.Run(d.name+" latch", func(t *testing.T) {
				record(t, "13 CLIENT KILL on the waiter's subscription", java.name, "latch", d.name, nil)
				name := fresh("killed")
				require.Equal(t, "1", d.holder.do("a", "latch.set", name, 1))
				open := d.waiter.of(t).begin("b", "latch.await", name, forever)
				s.awaitListeners(t, name, 1)
				require.NoError(t, s.keys.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
				s.awaitListeners(t, name, 1)
				d.holder.do("a", "latch.down", name)
				require.NoError(t, await(t, open).err)
			})
			for _, k := range locks[:4] {
				t.Run(d.name+" "+k.kind, func(t *testing.T) {
					record(t, "13 CLIENT KILL on the waiter's subscription", java.name, k.kind, d.name, nil)
					h, w := d.holder.of(t), d.waiter.of(t)
					name := fresh("killed")
					require.NotEqual(t, "0", h.do("a", "lock", k.holder, name, never, renewed))
					granted := w.begin("b", "lock", k.waiter, name, forever, renewed)
					s.awaitListeners(t, name, 1)
					require.NoError(t, s.keys.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
					s.awaitListeners(t, name, 1) // it has subscribed again
					h.do("a", "unlock", k.holder, name)
					r := await(t, granted)
					require.NoError(t, r.err)
					w.do("b", "unlock", k.waiter, name)
				})
			}
		}
	})
}

// TestFrozenHolder stops the process of a holder for longer than its lease. The other side is granted
// the lock, and the late release of the holder does not affect that.
func TestFrozenHolder(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		for _, frozen := range []string{theirs, ours} {
			t.Run(frozen, func(t *testing.T) {
				t.Parallel()
				s := single(t)
				h, w := open(t, ownRedisson(t, version), s.address, "watchdog=3000"), open(t, golang(t), s.address)
				if frozen == ours {
					h, w = open(t, golang(t), s.address, "watchdog=3000"), open(t, redisson(t, version), s.address)
				}
				names, granted := make(map[string]string), make(map[string]<-chan reply)
				for _, k := range locks {
					record(t, "13 a frozen holder", "Redisson "+version, k.kind, frozen, nil)
					names[k.kind] = fresh("frozen")
					require.NotEqual(t, "0", h.do(k.kind, "lock", k.holder, names[k.kind], never, renewed))
					granted[k.kind] = w.begin(k.kind, "lock", k.waiter, names[k.kind], forever, renewed)
				}
				s.queued(t, names["fair"], 1)
				behind := open(t, golang(t), s.address) // it wakes a thread that waits without a limit
				last := behind.begin("behind", "lock", "fair", names["fair"], forever, renewed)
				s.queued(t, names["fair"], 2)
				require.NoError(t, h.command.Process.Signal(syscall.SIGSTOP))
				for _, k := range locks {
					require.NoError(t, await(t, granted[k.kind]).err)
				}
				require.NoError(t, h.command.Process.Signal(syscall.SIGCONT))
				for _, k := range locks {
					before := s.keys.HGetAll(t.Context(), names[k.kind]).Val()
					_, err := h.try(k.kind, "unlock", k.holder, names[k.kind])
					assert.Error(t, err, "%s: the lease is over", k.kind)
					assert.Equal(t, before, s.keys.HGetAll(t.Context(), names[k.kind]).Val(), k.kind)
					w.do(k.kind, "unlock", k.waiter, names[k.kind])
				}
				require.NoError(t, await(t, last).err)
				behind.do("behind", "unlock", "fair", names["fair"])
			})
		}
	})
}

// TestFailoverUnderBothSides promotes a replica by sentinels while one side holds and the
// other waits.
func TestFailoverUnderBothSides(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		set := redistest.StartSentinels(t, redistest.SentinelConfig{Replicas: 1}) // no failover but the test's
		var addresses []string
		for _, n := range set.Sentinels {
			_, address := n.Addr()
			addresses = append(addresses, address)
		}
		address := "sentinel://" + strings.Join(addresses, ",")
		java, wheel := open(t, redisson(t, version), address), open(t, golang(t), address)
		at := &site{nodes: []*redis.Client{set.Master(t).Client(t)}}
		type waiting struct {
			d       direction
			k       sides
			name    string
			granted <-chan reply
		}
		var all []waiting
		for _, d := range directions(java, wheel) {
			for _, k := range locks[:4] {
				w := waiting{d: d, k: k, name: fresh("failover")}
				record(t, "13 failover while one holds and one waits", java.name, k.kind, d.name, nil)
				require.NotEqual(t, "0", d.holder.do(d.name+k.kind, "lock", k.holder, w.name, never, renewed))
				w.granted = d.waiter.begin(d.name+k.kind, "lock", k.waiter, w.name, forever, renewed)
				at.awaitListeners(t, w.name, 1)
				all = append(all, w)
			}
		}
		set.Master(t).AwaitReplication(t, 1)
		set.Failover(t)
		for _, w := range all {
			select {
			case r := <-w.granted:
				t.Errorf("%s %s: granted while the other side holds it: %v", w.d.name, w.k.kind, r)
			default:
			}
			w.d.holder.do(w.d.name+w.k.kind, "unlock", w.k.holder, w.name)
		}
		for _, w := range all {
			r := await(t, w.granted)
			assert.NoError(t, r.err)
			assert.NotEqual(t, "0", r.text)
		}
	})
}
