package quorum_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// No lock is free for a minute while waiters of several processes want it, whatever becomes of the
// requests to a minority of the nodes, and of its data. With a poll of an hour, and TTLs of three, a waiter that misses
// a release does not find the lock by itself.
func TestNoLockStaysFreeBesideWaiters(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			w := newWeather(t)
			go w.change()
			assert.Less(t, w.play(2*time.Second).longest, time.Minute)
			pass(time.Minute)
		})
	}
}

// A node that loses a half of all requests and replies costs contenders no NodeTimeout, of 10 s, each
// time that they split the others: a free lock is granted after 50 ms or so.
func TestLossyNodeDelaysNoContenders(t *testing.T) {
	var free time.Duration
	grants := 0
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			w := newWeather(t)
			w.all[0].set(w.lossy)
			s := w.play(10 * time.Second)
			free += s.free
			grants += s.grants
			pass(time.Minute)
		})
	}
	assert.Less(t, free/time.Duration(grants), 500*time.Millisecond)
}

// weather is nodes of which a minority is ill.
type weather struct {
	*testing.T
	all    []*booth
	stores []driver.Store
	end    time.Time // of all use

	mu   sync.Mutex
	dice *rand.Rand // guarded by mu
}

func newWeather(t *testing.T) *weather {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &weather{T: t, dice: rand.New(rand.NewPCG(seed, 0)), end: time.Now().Add(15 * time.Second)}
	w.all, w.stores = booths(3 + 2*w.roll(2))
	for _, b := range w.all {
		b.set(w.well)
	}
	return w
}

func (w *weather) roll(n int) int { return int(w.upTo(time.Duration(n - 1))) }

func (w *weather) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.dice.Int64N(int64(d) + 1))
}

func (w *weather) well(string, *driver.Hold) mishap {
	return mishap{there: w.upTo(10 * time.Millisecond), back: w.upTo(10 * time.Millisecond)}
}

func (w *weather) slow(string, *driver.Hold) mishap {
	return mishap{there: w.upTo(200 * time.Millisecond), back: w.upTo(200 * time.Millisecond)}
}

func (w *weather) lossy(request string, h *driver.Hold) mishap {
	m := w.well(request, h)
	m.lost, m.mute = w.roll(4) == 0, w.roll(4) == 0
	return m
}

// change makes nodes slow, lossy or mute for a while, in turn. The messages of a mute one are lost, and
// it reports that afterwards; it may have lost its data. No more than a minority is ill at once.
func (w *weather) change() {
	for ; time.Now().Before(w.end); time.Sleep(2 * time.Second) {
		first, ill := w.roll(len(w.all)), len(w.all)/2
		for i := range ill {
			b := w.all[(first+i)%len(w.all)]
			switch w.roll(4) {
			case 0:
				b.set(w.slow)
			case 1:
				b.hush(true)
				b.set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
			default:
				b.set(w.lossy)
			}
		}
		time.Sleep(w.upTo(5 * time.Second))
		for i := range ill {
			b := w.all[(first+i)%len(w.all)]
			b.set(w.well)
			if b.muted() && w.roll(2) == 0 {
				b.lose()
			}
			b.hush(false)
		}
	}
}

// play has several processes use the lock, and returns for how long it was free beside waiters.
func (w *weather) play(nodeTimeout time.Duration) *idleness {
	s := &idleness{}
	var users sync.WaitGroup
	for range 2 + w.roll(3) {
		store, err := quorum.New(w.stores, quorum.Config{NodeTimeout: nodeTimeout})
		require.NoError(w, err)
		l, err := lock.New(store, lock.Config{TTL: 3 * time.Hour, Poll: time.Hour, RequestTimeout: nodeTimeout + time.Second})
		require.NoError(w, err)
		defer func() {
			assert.NoError(w, l.Close())
			assert.NoError(w, store.Close())
		}()
		for range 1 + w.roll(3) {
			users.Go(func() {
				for time.Now().Before(w.end) {
					time.Sleep(w.upTo(300 * time.Millisecond))
					s.change(1, 0)
					lease, err := l.Mutex("a").Lock(context.Background())
					s.change(-1, 1)
					if !assert.NoError(w, err) {
						return
					}
					time.Sleep(w.upTo(100 * time.Millisecond))
					if err := lease.Unlock(context.Background()); !errors.Is(err, lock.ErrLost) { // by the loss of data
						assert.NoError(w, err)
					}
					s.change(0, -1)
				}
			})
		}
	}
	users.Wait()
	w.Logf("%d nodes: free for %v before %d grants, for %v at most", len(w.all), s.free, s.grants, s.longest)
	return s
}

// idleness measures for how long a lock is free beside waiters.
type idleness struct {
	mu            sync.Mutex
	waiters, held int
	since         time.Time // when that began, if it is so
	free, longest time.Duration
	grants        int
}

// change records by how much the numbers of waiters and of holders have changed.
func (s *idleness) change(waiters, held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiters > 0 && s.held == 0 && held > 0 {
		s.free += time.Since(s.since)
		s.longest = max(s.longest, time.Since(s.since))
	}
	if s.waiters == 0 || held < 0 {
		s.since = time.Now()
	}
	s.waiters, s.held, s.grants = s.waiters+waiters, s.held+held, s.grants+max(held, 0)
}
