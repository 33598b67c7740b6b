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
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// Whatever becomes of requests, replies and messages, no two leases are valid at once,
// tokens grow, and in the end nobody has the lock.
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
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed, handle).run(time.Minute) })
		})
	}
}

// chaos is a lock's users, and what they find.
type chaos struct {
	*testing.T
	server *locktest.Server
	handle func(*lock.Locker) *lock.Mutex
	dice   *dice

	mu    sync.Mutex
	held  map[*lock.Lease]struct{} // guarded by mu
	token int64                    // guarded by mu; the largest so far
}

func newChaos(t *testing.T, seed uint64, handle func(*lock.Locker) *lock.Mutex) *chaos {
	return &chaos{
		T: t, server: locktest.Start(t), handle: handle, dice: &dice{rng: rand.New(rand.NewPCG(seed, 0))},
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
	time.Sleep(4 * ttl) // for what nobody could be told of
	c.mu.Lock()
	defer c.mu.Unlock()
	last, err := c.handle(c.server.Locker(c, lock.Config{TTL: ttl})).TryLock(c.Context())
	require.NoError(c, err)
	assert.Greater(c, last.Token(), c.token)
	require.NoError(c, last.Unlock(c.Context()))
}

// use has one user try to get the lock, and hold it, once more perhaps, for a while.
func (c *chaos) use(m *lock.Mutex) {
	ctx, cancel := context.WithTimeout(c.Context(), 100*time.Millisecond+c.dice.upTo(6*time.Second))
	defer cancel()
	lease, err := m.LockWithin(ctx, c.dice.upTo(4*time.Second)-time.Second)
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

// useAgain has the holder take the lock once more, and give that back.
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

// begin notes a grant, and fails the test if there is another.
func (c *chaos) begin(lease *lock.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !lease.Valid() {
		return // it has taken too long to be told
	}
	for other := range c.held {
		assert.False(c, other.Valid(), "%s holds the lock beside %s", lease.Owner(), other.Owner())
	}
	assert.Greater(c, lease.Token(), c.token)
	c.token = max(c.token, lease.Token())
	c.held[lease] = struct{}{}
}

// dice is a source of randomness that many share.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// roll returns one of n numbers from 0 on.
func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *dice) upTo(most time.Duration) time.Duration { return time.Duration(d.roll(int(most))) }

// unreliable is a store on the way to which requests, replies and messages are lost or
// late.
type unreliable struct {
	lock.Store
	dice *dice
}

// carry sends a request, or not. reply is not ok if it is not to be heard.
func carry[R any](ctx context.Context, d *dice, request func(context.Context) R) (reply R, ok bool) {
	switch d.roll(14) {
	case 0: // the reply is lost
		_ = request(ctx)
	case 1: // the request is
	case 2: // or comes when nobody waits for it any more
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

func (u *unreliable) Acquire(ctx context.Context, h *lock.Hold) (lock.Answer, error) {
	type reply struct {
		lock.Answer
		err error
	}
	sent := *h
	r, ok := carry(ctx, u.dice, func(ctx context.Context) reply {
		answer, err := u.Store.Acquire(ctx, &sent)
		return reply{answer, err}
	})
	if !ok {
		return lock.Answer{}, unavailable{}
	}
	return r.Answer, r.err
}

func (u *unreliable) Release(ctx context.Context, h *lock.Hold) (held bool, err error) {
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

// Subscribe loses messages, and has others come late.
func (u *unreliable) Subscribe(ctx context.Context, h *lock.Hold, tell func(lock.Notice)) (lock.Subscription, error) {
	heard := &hearing{tell: tell}
	subscription, err := u.Store.Subscribe(ctx, h, func(n lock.Notice) {
		switch u.dice.roll(6) {
		case 0:
		case 1:
			time.AfterFunc(u.dice.upTo(4*time.Second), func() { heard.say(n) })
		default:
			heard.say(n)
		}
	})
	heard.Subscription = subscription
	return heard, err
}

// hearing is a subscription whose messages may be late, but not after its end.
type hearing struct {
	lock.Subscription
	tell func(lock.Notice)

	mu    sync.Mutex
	ended bool // guarded by mu
}

func (h *hearing) say(n lock.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.tell(n)
	}
}

func (h *hearing) Close() {
	h.Subscription.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}
