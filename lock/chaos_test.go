package lock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// Under random faults of requests, replies and messages, no two leases are valid at once
// and tokens grow. In the end the lock is free.
func TestChaos(t *testing.T) {
	for name, handle := range map[string]func(l *lock.Locker) *lock.Mutex{
		"mutex":     func(l *lock.Locker) *lock.Mutex { return l.Mutex("a") },
		"passed on": func(l *lock.Locker) *lock.Mutex { return passing(l, lock.Options{Passes: 20}) },
		"fair":      func(l *lock.Locker) *lock.Mutex { return l.Fair("a") },
		"write":     func(l *lock.Locker) *lock.Mutex { return l.ReadWrite("a").WritersFirst().Write() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed, handle).run(6 * time.Second) })
		})
	}
}

// chaos is the state of a random test with several users of one lock.
type chaos struct {
	*testing.T
	server *locktest.Memory
	handle func(*lock.Locker) *lock.Mutex
	dice   *dice

	mu    sync.Mutex
	held  map[*lock.Lease]struct{} // guarded by mu
	token int64                    // guarded by mu; the largest so far
}

func newChaos(t *testing.T, seed uint64, handle func(*lock.Locker) *lock.Mutex) *chaos {
	return &chaos{
		T: t, server: locktest.StartMemory(t), handle: handle, dice: &dice{rng: rand.New(rand.NewPCG(seed, 0))},
		held: make(map[*lock.Lease]struct{}),
	}
}

func (c *chaos) run(d time.Duration) {
	const ttl = 3 * time.Second
	end := time.Now().Add(d)
	var users sync.WaitGroup
	for range 3 {
		store := &unreliable{Store: c.server.Store(c), dice: c.dice}
		m := c.handle(locker(c.T, store, lock.Config{TTL: ttl, RequestTimeout: 400 * time.Millisecond}))
		for range 4 {
			users.Go(func() {
				for time.Now().Before(end) {
					c.use(m)
				}
			})
		}
	}
	users.Wait()
	assert.NotZero(c, c.token, "grants")
	time.Sleep(4 * ttl) // for releases that the store never received
	c.mu.Lock()
	defer c.mu.Unlock()
	last, err := c.handle(c.server.Locker(c, lock.Config{TTL: ttl})).TryLock(c.Context())
	require.NoError(c, err)
	assert.Greater(c, last.Token(), c.token)
	require.NoError(c, last.Unlock(c.Context()))
}

// use lets one user try to acquire the lock and hold it for a while, perhaps twice.
func (c *chaos) use(m *lock.Mutex) {
	ctx, cancel := context.WithTimeout(c.Context(), 100*time.Millisecond+c.dice.upTo(6*time.Second))
	defer cancel()
	lease, err := m.MaxWait(c.dice.upTo(4*time.Second) - time.Second).Lock(ctx)
	if err != nil {
		time.Sleep(c.dice.upTo(200 * time.Millisecond))
		return
	}
	c.begin(lease)
	time.Sleep(c.dice.upTo(500 * time.Millisecond))
	if c.dice.roll(4) == 0 {
		c.useAgain(m, lease)
	}
	c.mu.Lock()
	delete(c.held, lease)
	c.mu.Unlock()
	_ = lease.Unlock(ctx)
}

// useAgain acquires the lock once more with the holder's context, and unlocks that hold.
func (c *chaos) useAgain(m *lock.Mutex, lease *lock.Lease) {
	inner, err := m.Lock(lease.Context())
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.Context(), 10*time.Millisecond+c.dice.upTo(time.Second))
	defer cancel()
	_ = inner.Unlock(ctx)
	time.Sleep(c.dice.upTo(1500 * time.Millisecond))
}

// begin records a grant, and fails the test if another lease is valid.
func (c *chaos) begin(lease *lock.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !lease.Valid() {
		return // the lease ended before it was returned
	}
	for other := range c.held {
		assert.False(c, other.Valid(), "%s holds the lock beside %s", lease.Owner(), other.Owner())
	}
	assert.Greater(c, lease.Token(), c.token)
	c.token = max(c.token, lease.Token())
	c.held[lease] = struct{}{}
}

// dice is a shared source of random numbers.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// roll returns a number from 0 to n-1.
func (d *dice) roll(n int) int { return int(d.upTo(time.Duration(n))) }

func (d *dice) upTo(most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rng.Int64N(int64(most)))
}

// unreliable is a store that loses or delays requests, replies and messages.
type unreliable struct {
	driver.Store
	dice *dice
}

// carry sends a request, loses it or delays it. ok is false if there is no reply.
func carry[R any](ctx context.Context, d *dice, request func(context.Context) R) (reply R, ok bool) {
	switch d.roll(14) {
	case 0: // the reply is lost
		_ = request(ctx)
	case 1: // the request is lost
	case 2: // the request arrives after its caller gave up
		go func() {
			time.Sleep(d.upTo(700 * time.Millisecond))
			_ = request(context.WithoutCancel(ctx))
		}()
	case 3:
		time.Sleep(d.upTo(300 * time.Millisecond))
		return request(ctx), true
	case 4:
		reply = request(ctx)
		time.Sleep(d.upTo(300 * time.Millisecond))
		return reply, true
	default:
		return request(ctx), true
	}
	<-ctx.Done()
	return reply, false
}

func (u *unreliable) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	type reply struct {
		driver.Answer
		err error
	}
	sent := *h
	r, ok := carry(ctx, u.dice, func(ctx context.Context) reply {
		answer, err := u.Store.Acquire(ctx, &sent)
		return reply{answer, err}
	})
	if !ok {
		return driver.Answer{}, unavailable{}
	}
	return r.Answer, r.err
}

func (u *unreliable) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	type reply struct {
		held bool
		err  error
	}
	sent := *h
	r, ok := carry(ctx, u.dice, func(ctx context.Context) reply {
		held, err := u.Store.Release(ctx, &sent)
		return reply{held, err}
	})
	if !ok {
		return false, unavailable{}
	}
	return r.held, r.err
}

// Subscribe loses some messages and delays others.
func (u *unreliable) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	delayed := &delayedSubscription{notify: notify}
	subscription, err := u.Store.Subscribe(ctx, h, func(n driver.Notice) {
		switch u.dice.roll(6) {
		case 0:
		case 1:
			time.AfterFunc(u.dice.upTo(4*time.Second), func() { delayed.deliver(n) })
		default:
			delayed.deliver(n)
		}
	})
	delayed.Subscription = subscription
	return delayed, err
}

// delayedSubscription is a subscription that may delay its messages, but not past its end.
type delayedSubscription struct {
	driver.Subscription
	notify func(driver.Notice)

	mu    sync.Mutex
	ended bool // guarded by mu
}

func (h *delayedSubscription) deliver(n driver.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.notify(n)
	}
}

func (h *delayedSubscription) Close() {
	h.Subscription.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}
