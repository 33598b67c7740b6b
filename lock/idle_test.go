package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/retry"
)

// No lock is free while waiters of several processes want it, whatever their options are
// and whenever they give up. With a poll of an hour, a head that sleeps on a wrong belief
// does not find the lock by itself.
func TestNoLockStaysFreeBesideWaiters(t *testing.T) {
	// dies: holders may leave their lock to expire. The waiters of a mutex in Redisson's
	// format do not learn of each new holder, and find such a lock by their poll.
	for name, test := range map[string]struct {
		handle func(l *lock.Locker) *lock.Mutex
		plain  bool
		dies   bool
		limit  time.Duration // if above a second
	}{
		"mutex":       {handle: func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") }},
		"plain mutex": {handle: func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") }, plain: true, dies: true},
		"write":       {handle: func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("a").Write() }, dies: true},
		"fair":        {handle: func(l *lock.Locker) *lock.Mutex { return l.Fair("a") }, dies: true, limit: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) {
				memory, server := locktest.StartMemory(t), locktest.Start(t)
				s := &scene{T: t, dice: &dice{rng: rand.New(rand.NewPCG(seed, 0))}, dies: test.dies, limit: max(test.limit, time.Second), waiters: make(map[int]struct{}), holders: make(map[int]time.Time)}
				end := time.Now().Add(8 * time.Second)
				var users sync.WaitGroup
				for range 2 + s.roll(3) {
					var store driver.Store = memory.Store(t)
					if test.plain {
						store = plainStore(t, server)
					}
					l := locker(t, slow{store, s.dice}, lock.Config{TTL: 3 * time.Hour, Poll: time.Hour})
					for range 1 + s.roll(4) {
						users.Go(func() {
							for time.Now().Before(end) {
								time.Sleep(s.upTo(300 * time.Millisecond))
								s.use(test.handle(l))
							}
						})
					}
				}
				ended := make(chan struct{})
				go func() { users.Wait(); close(ended) }()
				s.watch(ended)
			})
		})
	}
}

// slow is a store with round trips of random lengths.
type slow struct {
	driver.Store
	dice *dice
}

func (s slow) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	time.Sleep(s.dice.upTo(15 * time.Millisecond))
	defer func() { time.Sleep(s.dice.upTo(15 * time.Millisecond)) }()
	return s.Store.Acquire(ctx, h)
}

func (s slow) KeepPlaces(ctx context.Context, name string, owners []string, place time.Duration) ([]int, error) {
	time.Sleep(s.dice.upTo(15 * time.Millisecond))
	defer func() { time.Sleep(s.dice.upTo(15 * time.Millisecond)) }()
	return s.Store.(driver.PlaceKeeper).KeepPlaces(ctx, name, owners, place)
}

func (s slow) Release(ctx context.Context, h *driver.Hold) (bool, error) {
	time.Sleep(s.dice.upTo(15 * time.Millisecond))
	defer func() { time.Sleep(s.dice.upTo(15 * time.Millisecond)) }()
	return s.Store.Release(ctx, h)
}

// scene knows who waits for the lock and who holds it.
type scene struct {
	*testing.T
	*dice
	dies  bool
	limit time.Duration // longer than yield windows, and than a fair waiter's pauses

	sceneMu sync.Mutex
	next    int
	waiters map[int]struct{}
	holders map[int]time.Time // until when; zero: until they unlock
	grants  int
}

// watch fails the test if the lock is free for longer than its limit although it is wanted.
func (s *scene) watch(ended chan struct{}) {
	free := time.Now()
	for {
		select {
		case <-ended:
			assert.NotZero(s, s.grants) // of 35 or so; the watch decides
			return
		case <-time.After(20 * time.Millisecond):
		}
		s.sceneMu.Lock()
		for id, until := range s.holders {
			if !until.IsZero() && time.Now().After(until) {
				delete(s.holders, id)
			}
		}
		if len(s.waiters) == 0 || len(s.holders) > 0 {
			free = time.Now()
		}
		idle, waiters, grants := time.Since(free), len(s.waiters), s.grants
		s.sceneMu.Unlock()
		if idle > s.limit {
			s.Errorf("the lock is free for %v while %d wait, after %d grants", idle, waiters, grants)
			<-ended // after an hour
			return
		}
	}
}

// use waits for the lock, gives up at any instant, or holds it for a while.
func (s *scene) use(m *lock.Mutex) {
	o := lock.Options{}
	if s.roll(3) == 0 {
		o.TTL, o.Fixed = 500*time.Millisecond+s.upTo(2*time.Second), true
	}
	if s.roll(8) == 0 {
		o.Retry = retry.Every(100 * time.Millisecond).Limited(1 + s.roll(4))
	}
	wait := 10 * time.Hour
	if s.roll(4) > 0 {
		wait = s.upTo(time.Duration(1+s.roll(4)) * time.Second)
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	if s.roll(4) == 0 {
		time.AfterFunc(s.upTo(2*time.Second), cancel)
	}
	id := s.begins()
	lease, err := m.With(o).MaxWait(wait).Lock(ctx)
	granted := err == nil
	dies := granted && o.Fixed && s.dies && s.roll(2) == 0
	var until time.Time
	if dies {
		until = lease.Until().Add(100 * time.Millisecond) // and the margin
	}
	s.ends(id, granted, until)
	if !granted || dies {
		return
	}
	time.Sleep(s.upTo(250 * time.Millisecond))
	if err := lease.Unlock(s.Context()); !errors.Is(err, lock.ErrLost) {
		assert.NoError(s, err)
	}
	s.sceneMu.Lock()
	defer s.sceneMu.Unlock()
	delete(s.holders, id)
}

// begins records a waiter.
func (s *scene) begins() (id int) {
	s.sceneMu.Lock()
	defer s.sceneMu.Unlock()
	s.next++
	s.waiters[s.next] = struct{}{}
	return s.next
}

// ends records that a waiter gave up, or has the lock until then.
func (s *scene) ends(id int, granted bool, until time.Time) {
	s.sceneMu.Lock()
	defer s.sceneMu.Unlock()
	delete(s.waiters, id)
	if granted {
		s.grants++
		s.holders[id] = until
	}
}
