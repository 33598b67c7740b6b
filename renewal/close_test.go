package renewal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// inGiving is inBubble with a renewer that can release. f closes the watchdog.
func inGiving(t *testing.T, f func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &giving{store: newStore()}
		dog, err := New(s, Config{})
		require.NoError(t, err)
		b := &bench{t, s.store, dog}
		f(b)
		require.NoError(t, dog.Close(context.Background()), "a second time")
		b.close()
	})
}

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func TestCloseReleases(t *testing.T) {
	inGiving(t, func(b *bench) {
		leases := b.grantMany(300, "a/", atOnce)
		leases = append(leases, b.grantMany(300, "b/", atOnce)...)
		leases = append(leases, b.grant(Spec{Key: "a/fixed", Fixed: true}))
		b.remove("a/1")
		b.remove("a/2")
		require.True(b, b.acquire("a/2", "another", time.Minute))
		var hooks atomic.Int32
		slow := b.grant(Spec{Key: "a/slow", OnLost: func(error) {
			time.Sleep(time.Second)
			hooks.Add(1)
		}})
		time.Sleep(time.Second)
		require.NoError(b, b.dog.Close(within(time.Minute)))
		require.EqualValues(b, 1, hooks.Load(), "Close waits for the hooks")
		for _, l := range append(leases, slow) {
			b.isLost(l, Closed)
			b.forbid(l.Owner())
		}
		require.Len(b, b.leases, 1, "the other's lease is left alone")
		require.EqualValues(b, 602, b.dog.Stats().Lost[Closed])
		_, err := b.dog.Watch(Spec{Key: "late", TTL: time.Minute, Granted: time.Now()})
		require.ErrorIs(b, err, ErrClosed)
	})
}

func TestOrphanLeavesTheLeases(t *testing.T) {
	inGiving(t, func(b *bench) {
		leases := b.grantMany(300, "k", atOnce)
		require.NoError(b, b.dog.Orphan(within(time.Minute)))
		for _, l := range leases {
			b.isLost(l, Closed)
			b.forbid(l.Owner())
		}
		require.Len(b, b.leases, 300)
		time.Sleep(time.Minute)
	})
}

// Leases that cannot be released are named, and cost the others nothing.
func TestCloseReportsWhatItCouldNotRelease(t *testing.T) {
	inGiving(t, func(b *bench) {
		wrong := errors.New("wrong type")
		b.grantMany(200, "a/", atOnce)
		b.grantMany(200, "b/", atOnce)
		b.node("a", func(n *node) { n.mute = true })
		b.node("b", func(n *node) { n.bad = map[string]error{"b/7": wrong} })
		start := time.Now()
		err := b.dog.Close(within(5 * time.Second))
		require.Equal(b, 5*time.Second, time.Since(start))
		var left *UnreleasedError
		require.ErrorAs(b, err, &left)
		require.Len(b, left.Keys, 201)
		require.Contains(b, left.Keys, "b/7")
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.ErrorContains(b, err, "201 leases were not released")
		require.Len(b, b.leases, 201)
	})
}

// Batches of one group are released at the same time.
func TestCloseReleasesBatchesInParallel(t *testing.T) {
	inGiving(t, func(b *bench) {
		b.node("", func(n *node) { n.release = 50 * time.Millisecond })
		b.grantMany(16*DefaultBatchSize, "k", atOnce)
		start := time.Now()
		require.NoError(b, b.dog.Close(within(time.Minute)))
		require.Empty(b, b.leases)
		require.Less(b, time.Since(start), 16*50*time.Millisecond/(DefaultGroupParallel-1))
	})
}

// Without a deadline, Close ends when the store has dropped everything by itself.
func TestCloseOnADeadStore(t *testing.T) {
	inGiving(t, func(b *bench) {
		b.grantMany(10, "k", atOnce)
		b.node("", func(n *node) { n.mute = true })
		start := time.Now()
		require.NoError(b, b.dog.Close(context.Background()))
		require.GreaterOrEqual(b, time.Since(start), 30*time.Second)
		require.Less(b, time.Since(start), 35*time.Second)
	})
}

// Renewals in flight are cancelled, and their leases released when they have returned.
func TestCloseWithRenewalsInFlight(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			inGiving(t, func(b *bench) {
				b.node("", func(n *node) { n.before, n.deaf = time.Second, deaf })
				b.grantMany(100, "k", atOnce)
				b.awaitRequest()
				start := time.Now()
				require.NoError(b, b.dog.Close(within(time.Minute)))
				if !deaf {
					require.Less(b, time.Since(start), tick)
				}
				require.Empty(b, b.leases)
				time.Sleep(time.Minute)
				require.Empty(b, b.leases)
			})
		})
	}
}

func TestCloseIsBounded(t *testing.T) {
	inGiving(t, func(b *bench) {
		hang := make(chan bool)
		b.grant(Spec{Key: "hangs", OnLost: func(error) { <-hang }})
		b.node("", func(n *node) { n.before, n.deaf = time.Minute, true })
		b.grant(Spec{Key: "k"})
		b.awaitRequest()
		start := time.Now()
		var second sync.WaitGroup
		second.Go(func() {
			time.Sleep(time.Second)
			require.ErrorIs(b, b.dog.Close(within(time.Second)), context.DeadlineExceeded)
			require.Equal(b, 2*time.Second, time.Since(start))
		})
		err := b.dog.Close(within(5 * time.Second))
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.Equal(b, 5*time.Second, time.Since(start))
		second.Wait()
		close(hang)
		time.Sleep(time.Minute)
	})
}

func TestCloseRacingEverything(t *testing.T) {
	inGiving(t, func(b *bench) {
		b.node("", func(n *node) { n.before, n.after = 3*time.Millisecond, 3*time.Millisecond })
		var users sync.WaitGroup
		for i := range 500 {
			users.Go(func() {
				for j := 0; ; j++ {
					time.Sleep(time.Duration(i%7) * time.Millisecond)
					key, owner := fmt.Sprint("k", i, "/", j), fmt.Sprint("o", i, "/", j)
					granted := time.Now()
					require.True(b, b.acquire(key, owner, time.Second))
					l, err := b.dog.Watch(Spec{Key: key, Owner: owner, TTL: time.Second, Granted: granted})
					if err != nil {
						require.ErrorIs(b, err, ErrClosed)
						b.remove(key)
						return
					}
					select {
					case <-time.After(time.Duration(1+i%11) * 100 * time.Millisecond):
					case <-l.Lost():
						b.isLost(l, Closed)
					}
					require.NoError(b, l.Stop(b.Context()))
					b.forbid(owner)
					b.remove(key)
				}
			})
		}
		time.Sleep(3 * time.Second)
		require.NoError(b, b.dog.Close(within(time.Minute)))
		users.Wait()
		require.Empty(b, b.leases)
		s := b.dog.Stats()
		require.Equal(b, s.Watched, s.Released+s.Lost.Total())
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		err := b.dog.Drain(within(time.Minute))
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.ErrorContains(b, err, "1 leases are still held")
		_, err = b.dog.Watch(Spec{Key: "late", TTL: time.Minute, Granted: time.Now()})
		require.ErrorIs(b, err, ErrClosed)
		require.True(b, l.Valid(), "it is renewed meanwhile")
		var drained sync.WaitGroup
		for range 2 {
			drained.Go(func() { require.NoError(b, b.dog.Drain(within(2*time.Minute))) })
		}
		time.Sleep(time.Minute)
		b.stop(l)
		drained.Wait()
		require.NoError(b, b.dog.Drain(within(0)), "nothing is held")
	})
}

func TestPause(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		leases := b.grantMany(300, "k", func() time.Duration { return 10 * time.Millisecond })
		fixed := b.grant(Spec{Key: "fixed", Fixed: true})
		b.dog.Pause()
		b.take()
		time.Sleep(15 * time.Second)
		require.Empty(b, b.take())
		b.allHeld(leases)
		b.dog.Resume()
		time.Sleep(tick)
		require.Equal(b, 300, sizes(b.take()))
		b.allHeld(leases)
		b.dog.Pause()
		b.lost(fixed, Expired)
		until := leases[7].Until()
		b.lost(leases[7], Expired)
		b.inTime(until)
		b.dog.Resume()
	})
}
