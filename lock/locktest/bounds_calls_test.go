package locktest_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

const (
	requestTimeout = driver.DefaultRequestTimeout // and delayqueue's, and the quorum's NodeTimeout
	// wait is the limit of the calls whose name ends with Within.
	wait = 3 * time.Second
	// manyLeases is what a Shutdown has to release: several times what it releases at once.
	manyLeases = 150
	// untilRenewal is when the first renewal of a lease with the default TTL is in flight.
	untilRenewal = 9 * time.Second
	// unbounded is no bound.
	unbounded time.Duration = -1
)

// bound is a documented time limit.
type bound struct {
	text string
	of   func(c caller) time.Duration
}

// upTo is the limit of a call whose requests take no longer than d and the context.
func upTo(d time.Duration) func(c caller) time.Duration {
	return func(c caller) time.Duration { return min(d, c.over()) }
}

func constant(d time.Duration) func(c caller) time.Duration {
	return func(caller) time.Duration { return d }
}

// The bounds.
var (
	atOnce     = bound{"at once", constant(0)}
	byContext  = bound{"ctx", caller.over}
	byRequest  = bound{"RequestTimeout", upTo(requestTimeout)}
	byRetryFor = bound{"RetryFor", upTo(5 * time.Second)}
	byWait     = bound{"wait, RequestTimeout", upTo(wait + requestTimeout)}
	// A call that releases when its context has ended has a RequestTimeout for that.
	afterContext = bound{"ctx, RequestTimeout", func(c caller) time.Duration { return c.ends + requestTimeout }}
	afterTwo     = bound{"ctx, two RequestTimeouts", func(c caller) time.Duration { return c.ends + 2*requestTimeout }}
	tryDo        = bound{"TryLock, f, Unlock", func(c caller) time.Duration { return min(requestTimeout, c.over()) + requestTimeout }}
	doWithin     = bound{"MaxWait, f, Unlock", func(c caller) time.Duration { return min(wait+requestTimeout, c.over()) + requestTimeout }}
	afterSleep   = bound{"RequestTimeout", constant(untilRenewal + requestTimeout)}
	byPage       = bound{"5s a page", upTo(2 * 5 * time.Second)}
	byNode       = bound{"NodeTimeout", upTo(requestTimeout)}
	closeQuorum  = bound{"NodeTimeout, twice", constant(2 * requestTimeout)}
	byCheck      = bound{"20s", upTo(20 * time.Second)}
	byChecks     = bound{"a node's check, 2s", upTo(22 * time.Second)}
	// A store's request without a deadline has the timeouts of its client.
	byDeadline = bound{"ctx's deadline", func(c caller) time.Duration {
		if c.cancelled {
			return unbounded
		}
		return c.ends
	}}
	closeStore  = bound{"2s", constant(2 * time.Second)}
	closeLocker = bound{"RequestTimeout, twice", constant(2 * requestTimeout)}
	byLease     = bound{"ctx, TTL, RequestTimeout", func(c caller) time.Duration { return c.ends + delayqueue.DefaultTTL + requestTimeout }}
)

// boundedCall is a call of a method with its documented bound. prepare is called while the
// server is well.
type boundedCall struct {
	bound   bound
	prepare func(p *process) func(ctx context.Context)
}

// onLocker prepares a call on a locker that has sent a request.
func onLocker(call func(ctx context.Context, l *lock.Locker)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		warmLocker(p, p.locker())
		return func(ctx context.Context) { call(ctx, p.locker()) }
	}
}

// onQuorumLocker is onLocker for a locker on a quorum.
func onQuorumLocker(call func(ctx context.Context, l *lock.Locker)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		warmLocker(p, p.quorumLocker())
		return func(ctx context.Context) { call(ctx, p.quorumLocker()) }
	}
}

// cold prepares a call of a process that has sent nothing.
func cold(call func(ctx context.Context, p *process)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		p.locker()
		return func(ctx context.Context) { call(ctx, p) }
	}
}

func warmLocker(p *process, l *lock.Locker) {
	lease, err := l.Mutex("warm").TryLock(context.Background())
	require.NoError(p.t, err)
	require.NoError(p.t, lease.Unlock(context.Background()))
}

// on prepares a call on a store that has granted a hold to another owner and released it.
func on[S driver.Store](store func(*process) S, call func(ctx context.Context, s S)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		s, h := store(p), holdOf(9)
		_, err := s.Acquire(within(p.t, time.Second), h)
		require.NoError(p.t, err)
		_, err = s.Release(within(p.t, time.Second), released(h))
		require.NoError(p.t, err)
		return func(ctx context.Context) { call(ctx, s) }
	}
}

func onRedis(p *process) *redisstore.Store { return p.store() }
func onQuorum(p *process) *quorum.Store    { return p.quorum() }

// granted prepares a call for a hold that the store has granted.
func granted[S driver.Store](store func(*process) S, call func(ctx context.Context, s S)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		s := store(p)
		_, err := s.Acquire(within(p.t, time.Second), hold())
		require.NoError(p.t, err)
		return func(ctx context.Context) { call(ctx, s) }
	}
}

// fenced prepares an acquisition on a quorum that writes the token back: the first of a
// store, with one node whose counter is ahead of the clocks.
func fenced(p *process) func(context.Context) {
	warmLocker(p, p.newLocker(p.newQuorum()))
	h := hold()
	ahead := time.Now().Add(990 * time.Millisecond).UnixMicro()
	_, _, err := p.nodes()[0].(driver.Fencer).AcquireProposing(within(p.t, time.Second), h, ahead)
	require.NoError(p.t, err)
	_, err = p.nodes()[0].Release(within(p.t, time.Second), released(h))
	require.NoError(p.t, err)
	return func(ctx context.Context) { _, _ = p.quorum().Acquire(ctx, hold()) }
}

// split prepares an acquisition on a quorum whose nodes contenders have split: one is
// free and well, the others have granted the lock to one each.
func split(p *process) func(context.Context) {
	p.quorum()
	p.networks[len(p.networks)-len(p.nodes())].well = true
	for i, n := range p.nodes() {
		h := holdOf(i + 1)
		if i == 0 {
			h.Name = "warm"
		}
		_, err := n.Acquire(within(p.t, time.Second), h)
		require.NoError(p.t, err)
	}
	return func(ctx context.Context) { _, _ = p.quorum().Acquire(ctx, hold()) }
}

func nothing(context.Context) error { return nil }

// untilEnd leads until its context ends.
func untilEnd(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return nil
}

// all runs an iterator to its end.
func all[T any](seq iter.Seq2[T, error]) {
	seq(func(T, error) bool { return true })
}

// held prepares a call on a mutex that another process holds.
func held(call func(ctx context.Context, m *lock.Mutex)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		_, err := p.other().Mutex("held").TryLock(context.Background())
		require.NoError(p.t, err)
		warmLocker(p, p.locker())
		return func(ctx context.Context) { call(ctx, p.locker().Mutex("held")) }
	}
}

// owned prepares a call with a context that carries the ownership of the lock.
func owned(call func(ctx context.Context, m *lock.Mutex)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		m := p.locker().Mutex("owned")
		lease, err := m.TryLock(context.Background())
		require.NoError(p.t, err)
		return func(ctx context.Context) {
			ctx, cancel := lease.Within(ctx)
			defer cancel()
			call(ctx, m)
		}
	}
}

// onMulti prepares a call on several mutexes together.
func onMulti(call func(ctx context.Context, m *lock.Multi)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		l := p.locker()
		warmLocker(p, l)
		m := lock.All(l.Mutex("1"), l.Mutex("2"), l.Mutex("3"), l.Mutex("4"), l.Mutex("5"), l.Mutex("6"), l.Mutex("7"), l.Mutex("8"))
		return func(ctx context.Context) { call(ctx, m) }
	}
}

// onSemaphore prepares a call on a semaphore with a free permit.
func onSemaphore(call func(ctx context.Context, s *lock.Semaphore)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		s := p.locker().Semaphore("semaphore")
		_, err := s.TrySetPermits(context.Background(), 0)
		require.NoError(p.t, err)
		require.NoError(p.t, s.Release(context.Background(), 1)) // the server knows the script then
		return func(ctx context.Context) { call(ctx, s) }
	}
}

// onPermits prepares a call on a semaphore whose permits expire, with a free permit.
func onPermits(call func(ctx context.Context, s *lock.Permits)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		s := p.locker().Permits("permits")
		_, err := s.TrySetPermits(context.Background(), 1)
		require.NoError(p.t, err)
		return func(ctx context.Context) { call(ctx, s) }
	}
}

// onLatch prepares a call on a latch that is closed.
func onLatch(call func(ctx context.Context, l *lock.Latch)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		l := p.locker().Latch("latch")
		_, err := l.TrySetCount(context.Background(), 2)
		require.NoError(p.t, err)
		return func(ctx context.Context) { call(ctx, l) }
	}
}

// ofBusyLocker prepares the end of a locker with leases, a waiter and a lock that has been
// waited for, and with a release and an acquisition in flight.
func ofBusyLocker(end func(ctx context.Context, l *lock.Locker)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		l, ctx := p.locker(), context.Background()
		for i := range manyLeases {
			_, err := l.Mutex(fmt.Sprint(i)).TryLock(ctx)
			require.NoError(p.t, err)
		}
		p.begin(func() { _, _ = l.Mutex("0").Lock(ctx) })
		waited, err := p.other().Mutex("waited").TryLock(ctx)
		require.NoError(p.t, err)
		granted := p.begin(func() {
			lease, err := l.Mutex("waited").Lock(ctx)
			if err == nil {
				err = lease.Unlock(ctx)
			}
			require.NoError(p.t, err)
		})
		time.Sleep(time.Second)
		require.NoError(p.t, waited.Unlock(ctx))
		<-granted
		unlocked, err := l.Mutex("unlocked").TryLock(ctx)
		require.NoError(p.t, err)
		_, err = l.Semaphore("semaphore").TrySetPermits(ctx, 10)
		require.NoError(p.t, err)
		return func(ctx context.Context) {
			for range 3 {
				p.begin(func() { _ = l.Semaphore("semaphore").Release(context.Background(), 1) })
			}
			p.begin(func() { _ = unlocked.Unlock(context.Background()) })
			p.begin(func() { _, _ = l.Mutex("tried").TryLock(context.Background()) })
			synctest.Wait()
			end(ctx, l)
		}
	}
}

// withMessage prepares a call on a queue with a delayed message.
func withMessage(call func(ctx context.Context, q *delayqueue.Queue)) func(p *process) func(context.Context) {
	return func(p *process) func(context.Context) {
		q := p.queue()
		_, err := q.Put(context.Background(), delayqueue.Message{ID: "message", Delay: time.Hour})
		require.NoError(p.t, err)
		return func(ctx context.Context) { call(ctx, q) }
	}
}

// hold is a hold of a mutex.
func hold() *driver.Hold { return holdOf(0) }

// holdOf is the hold of another owner.
func holdOf(i int) *driver.Hold {
	return &driver.Hold{Kind: driver.KindMutex, Name: "hold", Owner: fmt.Sprintf("0b7bd1b8-0000-8000-8000-000000000000:%d", i), Count: 1, TTL: 30 * time.Second}
}

func released(h *driver.Hold) *driver.Hold {
	none := *h
	none.Count = 0
	return &none
}

func items() []renewal.Item {
	h := hold()
	return []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}}
}

// within returns a context with a deadline.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// connecting prepares the end of a store that connects for a subscription.
func connecting(p *process) func(context.Context) {
	s := p.store()
	_, err := s.Acquire(within(p.t, time.Second), hold())
	require.NoError(p.t, err)
	return func(context.Context) { end(p, s) }
}

// subscribed prepares the end of a quorum with a subscription.
func subscribed(p *process) func(context.Context) {
	s := p.quorum()
	_, err := s.Acquire(within(p.t, time.Second), hold())
	require.NoError(p.t, err)
	_, err = s.Subscribe(within(p.t, time.Second), hold(), func(driver.Notice) {})
	require.NoError(p.t, err)
	return func(context.Context) { end(p, s) }
}

// end closes a store while it sends requests.
func end(p *process, s driver.Store) {
	for i := range 5 {
		h := holdOf(i)
		h.Name = h.Owner
		p.begin(func() { _, _ = s.Acquire(within(p.t, time.Second), h) })
		p.begin(func() { _, _ = s.Subscribe(within(p.t, time.Second), h, func(driver.Notice) {}) })
	}
	synctest.Wait()
	_ = s.Close()
}

func subscribe(ctx context.Context, s driver.Store) {
	sub, err := s.Subscribe(ctx, hold(), func(driver.Notice) {})
	if err == nil {
		sub.Close()
	}
}

var echo = redisstore.NewScript(fstest.MapFS{"echo.lua": {Data: []byte("return 1")}}, "echo.lua")

// calls returns the calls of the methods that take a context or promise a bound: one at
// least for each, by the package, type and name. What follows a space distinguishes several
// calls of a method.
func calls() map[string]boundedCall {
	return map[string]boundedCall{
		"lock.Mutex.Lock":             {byContext, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Mutex("free").Lock(ctx) })},
		"lock.Mutex.Lock (held)":      {byContext, held(func(ctx context.Context, m *lock.Mutex) { _, _ = m.Lock(ctx) })},
		"lock.Mutex.Lock (owned)":     {byContext, owned(func(ctx context.Context, m *lock.Mutex) { _, _ = m.Lock(ctx) })},
		"lock.Mutex.Lock (fair)":      {byContext, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Fair("fair").Lock(ctx) })},
		"lock.Mutex.Lock (quorum)":    {byContext, onQuorumLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Mutex("free").Lock(ctx) })},
		"lock.Mutex.Lock (cold)":      {byContext, cold(func(ctx context.Context, p *process) { _, _ = p.locker().Mutex("free").Lock(ctx) })},
		"lock.Mutex.TryLock (cold)":   {byRequest, cold(func(ctx context.Context, p *process) { _, _ = p.locker().Mutex("free").TryLock(ctx) })},
		"lock.Mutex.TryLock":          {byRequest, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Mutex("free").TryLock(ctx) })},
		"lock.Mutex.TryLock (held)":   {byRequest, held(func(ctx context.Context, m *lock.Mutex) { _, _ = m.TryLock(ctx) })},
		"lock.Mutex.TryLock (owned)":  {byRequest, owned(func(ctx context.Context, m *lock.Mutex) { _, _ = m.TryLock(ctx) })},
		"lock.Mutex.TryLock (read)":   {byRequest, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.ReadWrite("rw").Read().TryLock(ctx) })},
		"lock.Mutex.TryLock (write)":  {byRequest, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.ReadWrite("rw").Write().TryLock(ctx) })},
		"lock.Mutex.TryLock (quorum)": {byRequest, onQuorumLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Mutex("free").TryLock(ctx) })},
		"lock.Mutex.Lock (limited)":   {byWait, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Mutex("free").MaxWait(wait).Lock(ctx) })},
		"lock.Mutex.Lock (limited, held)": {byWait, held(func(ctx context.Context, m *lock.Mutex) {
			_, _ = m.MaxWait(wait).Lock(ctx)
		})},
		"lock.Mutex.Lock (limited, owned)": {byWait, owned(func(ctx context.Context, m *lock.Mutex) { _, _ = m.MaxWait(wait).Lock(ctx) })},
		"lock.Mutex.Do":                    {afterContext, onLocker(func(ctx context.Context, l *lock.Locker) { _ = l.Mutex("free").Do(ctx, nothing) })},
		"lock.Mutex.Do (zero)":             {tryDo, onLocker(func(ctx context.Context, l *lock.Locker) { _ = l.Mutex("free").MaxWait(0).Do(ctx, nothing) })},
		"lock.Mutex.Do (limited)":          {doWithin, onLocker(func(ctx context.Context, l *lock.Locker) { _ = l.Mutex("free").MaxWait(wait).Do(ctx, nothing) })},
		"lock.Mutex.Go":                    {atOnce, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Mutex("free").Go(ctx, nothing) })},
		"lock.Mutex.Go (owned)":            {atOnce, owned(func(ctx context.Context, m *lock.Mutex) { _, _ = m.Go(ctx, nothing) })},
		"lock.Mutex.Go (limited)":          {atOnce, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Mutex("free").MaxWait(wait).Go(ctx, nothing) })},
		"lock.Mutex.Go (zero)":             {atOnce, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Mutex("free").MaxWait(0).Go(ctx, nothing) })},
		"lock.Deferred.Wait": {byContext, onLocker(func(ctx context.Context, l *lock.Locker) {
			d, err := l.Mutex("free").Go(context.Background(), nothing)
			if err == nil {
				_ = d.Wait(ctx)
				d.Cancel()
			}
		})},
		"lock.Deferred.Cancel": {atOnce, onLocker(func(_ context.Context, l *lock.Locker) {
			d, err := l.Mutex("free").Go(context.Background(), nothing)
			if err == nil {
				d.Cancel()
			}
		})},
		"lock.Lease.Unlock": {byRequest, func(p *process) func(context.Context) {
			lease, err := p.locker().Mutex("free").TryLock(context.Background())
			require.NoError(p.t, err)
			return func(ctx context.Context) { _ = lease.Unlock(ctx) }
		}},
		"lock.Lease.Unlock (beside an acquisition)": {byRequest, func(p *process) func(context.Context) {
			m := p.locker().Mutex("owned")
			lease, err := m.TryLock(context.Background())
			require.NoError(p.t, err)
			again, err := m.TryLock(lease.Context())
			require.NoError(p.t, err)
			return func(ctx context.Context) {
				p.begin(func() { _, _ = m.TryLock(lease.Context()) })
				synctest.Wait()
				_ = again.Unlock(ctx)
			}
		}},
		"lock.Lease.Unlock (MinHold)": {byRequest, func(p *process) func(context.Context) {
			lease, err := p.locker().Mutex("free").With(lock.Options{MinHold: time.Minute}).TryLock(context.Background())
			require.NoError(p.t, err)
			return func(ctx context.Context) { _ = lease.Unlock(ctx) }
		}},
		"lock.Lease.Unlock (during a renewal)": {afterSleep, func(p *process) func(context.Context) {
			lease, err := p.locker().Mutex("free").TryLock(context.Background())
			require.NoError(p.t, err)
			return func(ctx context.Context) {
				time.Sleep(untilRenewal)
				_ = lease.Unlock(ctx)
			}
		}},
		"lock.Lease.Discard": {byRequest, func(p *process) func(context.Context) {
			lease, err := p.locker().Mutex("free").With(lock.Options{MinHold: time.Minute}).TryLock(context.Background())
			require.NoError(p.t, err)
			return func(ctx context.Context) { _ = lease.Discard(ctx) }
		}},
		"lock.Lease.Within": {atOnce, owned(func(context.Context, *lock.Mutex) {})},
		"lock.Multi.Lock":   {byContext, onMulti(func(ctx context.Context, m *lock.Multi) { _, _ = m.Lock(ctx) })},
		"lock.Multi.TryLock": {byRequest, onMulti(func(ctx context.Context, m *lock.Multi) {
			_, _ = m.TryLock(ctx)
		})},
		"lock.Multi.Lock (limited)":   {byWait, onMulti(func(ctx context.Context, m *lock.Multi) { _, _ = m.MaxWait(wait).Lock(ctx) })},
		"lock.Multi.Do":               {afterContext, onMulti(func(ctx context.Context, m *lock.Multi) { _ = m.Do(ctx, nothing) })},
		"lock.Multi.Do (zero)":        {tryDo, onMulti(func(ctx context.Context, m *lock.Multi) { _ = m.MaxWait(0).Do(ctx, nothing) })},
		"lock.Multi.Do (limited)":     {doWithin, onMulti(func(ctx context.Context, m *lock.Multi) { _ = m.MaxWait(wait).Do(ctx, nothing) })},
		"lock.Lease.Within (several)": {atOnce, onMulti(func(ctx context.Context, m *lock.Multi) {})},
		"lock.Lease.Unlock (several)": {byRequest, func(p *process) func(context.Context) {
			l := p.locker()
			lease, err := lock.All(l.Mutex("1"), l.Mutex("2"), l.Mutex("3"), l.Mutex("4"), l.Mutex("5")).TryLock(context.Background())
			require.NoError(p.t, err)
			return func(ctx context.Context) { _ = lease.Unlock(ctx) }
		}},

		"lock.Permits.TrySetPermits":        {byRequest, onPermits(func(ctx context.Context, s *lock.Permits) { _, _ = s.TrySetPermits(ctx, 2) })},
		"lock.Permits.TrySetPermitsFor":     {byRequest, onPermits(func(ctx context.Context, s *lock.Permits) { _, _ = s.TrySetPermitsFor(ctx, 2, time.Hour) })},
		"lock.Permits.SetPermits":           {byRetryFor, onPermits(func(ctx context.Context, s *lock.Permits) { _ = s.SetPermits(ctx, 2) })},
		"lock.Permits.AddPermits":           {byRetryFor, onPermits(func(ctx context.Context, s *lock.Permits) { _ = s.AddPermits(ctx, 2) })},
		"lock.Permits.Available":            {byRetryFor, onPermits(func(ctx context.Context, s *lock.Permits) { _, _ = s.Available(ctx) })},
		"lock.Mutex.Lock (permit)":          {byContext, onPermits(func(ctx context.Context, s *lock.Permits) { _, _ = s.One().Lock(ctx) })},
		"lock.Mutex.TryLock (permit)":       {byRequest, onPermits(func(ctx context.Context, s *lock.Permits) { _, _ = s.One().TryLock(ctx) })},
		"lock.Mutex.Lock (limited, permit)": {byWait, onPermits(func(ctx context.Context, s *lock.Permits) { _, _ = s.One().MaxWait(wait).Lock(ctx) })},
		"lock.Mutex.Do (permit)":            {afterContext, onPermits(func(ctx context.Context, s *lock.Permits) { _ = s.One().Do(ctx, nothing) })},
		"lock.Mutex.Go (permit)":            {atOnce, onPermits(func(ctx context.Context, s *lock.Permits) { _, _ = s.One().Go(ctx, nothing) })},

		"lock.Semaphore.TrySetPermits":     {byRequest, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _, _ = s.TrySetPermits(ctx, 2) })},
		"lock.Semaphore.TrySetPermitsFor":  {byRequest, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _, _ = s.TrySetPermitsFor(ctx, 2, time.Hour) })},
		"lock.Semaphore.AddPermits":        {byRetryFor, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _ = s.AddPermits(ctx, 2) })},
		"lock.Semaphore.Drain":             {byRetryFor, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _, _ = s.Drain(ctx) })},
		"lock.Semaphore.Available":         {byRetryFor, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _, _ = s.Available(ctx) })},
		"lock.Semaphore.Acquire":           {byContext, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _ = s.Acquire(ctx, 1) })},
		"lock.Semaphore.Acquire (taken)":   {byContext, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _ = s.Acquire(ctx, 2) })},
		"lock.Semaphore.TryAcquire":        {byRequest, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _ = s.TryAcquire(ctx, 1) })},
		"lock.Semaphore.Acquire (limited)": {byWait, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _ = s.MaxWait(wait).Acquire(ctx, 1) })},
		"lock.Semaphore.Release":           {byRequest, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _ = s.Release(ctx, 1) })},
		"lock.Semaphore.Release (refused)": {byRequest, onSemaphore(func(ctx context.Context, s *lock.Semaphore) { _ = s.Release(ctx, driver.MaxCount) })},

		"lock.Latch.TrySetCount": {byRequest, onLatch(func(ctx context.Context, l *lock.Latch) { _, _ = l.TrySetCount(ctx, 2) })},
		"lock.Latch.CountDown":   {byRetryFor, onLatch(func(ctx context.Context, l *lock.Latch) { _ = l.CountDown(ctx) })},
		"lock.Latch.Count":       {byRetryFor, onLatch(func(ctx context.Context, l *lock.Latch) { _, _ = l.Count(ctx) })},
		"lock.Latch.Delete":      {byRetryFor, onLatch(func(ctx context.Context, l *lock.Latch) { _, _ = l.Delete(ctx) })},
		"lock.Latch.Wait":        {byContext, onLatch(func(ctx context.Context, l *lock.Latch) { _ = l.Wait(ctx) })},

		"lock.Locker.Inspect":             {byRetryFor, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Inspect(ctx, "held", driver.KindMutex) })},
		"lock.Locker.Inspect (semaphore)": {byRetryFor, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Inspect(ctx, "semaphore", driver.KindSemaphore) })},
		"lock.Locker.Inspect (permits)":   {byRetryFor, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Inspect(ctx, "permits", driver.KindPermit) })},
		"lock.Locker.Inspect (latch)":     {byRetryFor, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.Inspect(ctx, "latch", driver.KindLatch) })},
		"lock.Locker.ForceRelease":        {byRetryFor, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = l.ForceRelease(ctx, "held") })},
		"lock.Locker.List":                {byPage, onLocker(func(ctx context.Context, l *lock.Locker) { all(l.List(ctx, "*")) })},
		"lock.Locker.List (one)":          {byRetryFor, onLocker(func(ctx context.Context, l *lock.Locker) { all(l.List(ctx, "one")) })},
		"lock.Locker.Close":               {closeLocker, ofBusyLocker(func(_ context.Context, l *lock.Locker) { _ = l.Close() })},
		"lock.Locker.Shutdown":            {afterContext, ofBusyLocker(func(ctx context.Context, l *lock.Locker) { _ = l.Shutdown(ctx) })},
		"lock.Locker.Shutdown (with a cleanup)": {afterContext, onLocker(func(ctx context.Context, l *lock.Locker) {
			brief, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_ = l.Semaphore("semaphore").Release(brief, 1) // repeated within the last RequestTimeout
			_ = l.Shutdown(ctx)
		})},

		"elect.Election.Run": {afterContext, onLocker(func(ctx context.Context, l *lock.Locker) {
			_ = elect.New(l, "leader", lock.Options{}).Run(ctx, untilEnd)
		})},
		"elect.Election.Run (follows)": {afterContext, func(p *process) func(context.Context) {
			_, err := p.other().Mutex("leader").TryLock(context.Background())
			require.NoError(p.t, err)
			warmLocker(p, p.locker())
			return func(ctx context.Context) {
				_ = elect.New(p.locker(), "leader", lock.Options{}).Run(ctx, untilEnd)
			}
		}},
		"elect.Election.Await":  {byContext, onLocker(func(ctx context.Context, l *lock.Locker) { _, _, _ = elect.New(l, "leader", lock.Options{}).Await(ctx) })},
		"elect.Election.Leader": {byRetryFor, onLocker(func(ctx context.Context, l *lock.Locker) { _, _ = elect.New(l, "leader", lock.Options{}).Leader(ctx) })},

		"quorum.Store.Acquire":          {byNode, on(onQuorum, func(ctx context.Context, s *quorum.Store) { _, _ = s.Acquire(ctx, hold()) })},
		"quorum.Store.Acquire (again)":  {byNode, granted(onQuorum, func(ctx context.Context, s *quorum.Store) { _, _ = s.Acquire(ctx, hold()) })},
		"quorum.Store.Acquire (fenced)": {byNode, fenced},
		"quorum.Store.Acquire (split)":  {byNode, split},
		"quorum.Store.Announce":         {byNode, on(onQuorum, func(ctx context.Context, s *quorum.Store) { _ = s.Announce(ctx, driver.Client{ID: "a"}, time.Hour) })},
		"quorum.Store.Check":            {byChecks, on(onQuorum, func(ctx context.Context, s *quorum.Store) { _, _ = s.Check(ctx, driver.CheckOptions{}) })},
		"quorum.Store.Close":            {closeQuorum, subscribed},
		"quorum.Store.Release":          {byNode, granted(onQuorum, func(ctx context.Context, s *quorum.Store) { _, _ = s.Release(ctx, released(hold())) })},
		"quorum.Store.Renew":            {byNode, granted(onQuorum, func(ctx context.Context, s *quorum.Store) { s.Renew(ctx, items()) })},
		"quorum.Store.Subscribe":        {byNode, on(onQuorum, func(ctx context.Context, s *quorum.Store) { subscribe(ctx, s) })},

		"redisstore.Script.Queue":         {atOnce, cold(func(ctx context.Context, p *process) { echo.Queue(ctx, p.client().Pipeline(), []string{"a"}) })},
		"redisstore.Store.Acquire":        {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.Acquire(ctx, hold()) })},
		"redisstore.Store.Acquire (cold)": {byDeadline, cold(func(ctx context.Context, p *process) { _, _ = p.store().Acquire(ctx, hold()) })},
		"redisstore.Store.AcquireProposing": {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) {
			_, _, _ = s.AcquireProposing(ctx, hold(), 1)
		})},
		"redisstore.Store.Announce": {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _ = s.Announce(ctx, driver.Client{ID: "a"}, time.Hour) })},
		"redisstore.Store.Check":    {byCheck, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.Check(ctx, driver.CheckOptions{}) })},
		"redisstore.Store.Close":    {closeStore, connecting},
		"redisstore.Store.Count": {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) {
			_, _ = s.Count(ctx, &driver.Count{Kind: driver.KindLatch, Name: "a"})
		})},
		"redisstore.Store.Fence":        {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.Fence(ctx, hold(), 1) })},
		"redisstore.Store.ForceRelease": {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.ForceRelease(ctx, "hold") })},
		"redisstore.Store.Inspect":      {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.Inspect(ctx, "hold", driver.KindMutex) })},
		"redisstore.Store.KeepPlaces": {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) {
			_, _ = s.KeepPlaces(ctx, "hold", []string{"a:1"}, time.Minute)
		})},
		"redisstore.Store.List": {byPage, on(onRedis, func(ctx context.Context, s *redisstore.Store) {
			all(s.List(ctx, "", func(string) bool { return true }))
		})},
		"redisstore.Store.Listen":         {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.Listen(ctx, "channel", func() {}) })},
		"redisstore.Store.Ping":           {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _ = s.Ping(ctx) })},
		"redisstore.Store.PublishCommand": {atOnce, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.PublishCommand(ctx) })},
		"redisstore.Store.Release":        {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.Release(ctx, released(hold())) })},
		"redisstore.Store.Renew":          {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { s.Renew(ctx, items()) })},
		"redisstore.Store.Run":            {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { _, _ = s.Run(ctx, echo, []string{"a"}) })},
		"redisstore.Store.Subscribe":      {byDeadline, on(onRedis, func(ctx context.Context, s *redisstore.Store) { subscribe(ctx, s) })},
		"redisstore.Store.Subscribe (and its Close)": {atOnce, func(p *process) func(context.Context) {
			var subs []driver.Subscription
			for i := range 10 {
				h := hold()
				h.Name = fmt.Sprint(i)
				sub, err := p.store().Subscribe(within(p.t, time.Second), h, func(driver.Notice) {})
				require.NoError(p.t, err)
				subs = append(subs, sub)
			}
			return func(context.Context) {
				for _, sub := range subs {
					sub.Close()
				}
			}
		}},

		"delayqueue.Queue.Cancel": {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) { _ = q.Cancel(ctx, "message") })},
		"delayqueue.Queue.Dead":   {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) { all(q.Dead(ctx)) })},
		"delayqueue.Queue.Get":    {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) { _, _ = q.Get(ctx, "message") })},
		"delayqueue.Queue.List": {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) {
			all(q.List(ctx, delayqueue.ListOptions{States: []delayqueue.State{delayqueue.Delayed}}))
		})},
		"delayqueue.Queue.Move": {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) {
			_ = q.Move(ctx, "message", time.Now().Add(time.Minute))
		})},
		"delayqueue.Queue.MoveIn": {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) { _ = q.MoveIn(ctx, "message", time.Minute) })},
		"delayqueue.Queue.Put":    {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) { _, _ = q.Put(ctx, delayqueue.Message{ID: "put"}) })},
		"delayqueue.Queue.PutAll": {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) {
			_, _ = q.PutAll(ctx, []delayqueue.Message{{ID: "1"}, {ID: "2"}})
		})},
		"delayqueue.Queue.PutTx": {atOnce, cold(func(ctx context.Context, p *process) {
			_, _ = p.queue().PutTx(ctx, p.client().TxPipeline(), delayqueue.Message{ID: "put"})
		})},
		"delayqueue.Queue.Revive": {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) { _, _ = q.Revive(ctx, "message") })},
		"delayqueue.Queue.Stats":  {byRetryFor, withMessage(func(ctx context.Context, q *delayqueue.Queue) { _, _ = q.Stats(ctx) })},
		"delayqueue.Queue.Work": {afterTwo, withMessage(func(ctx context.Context, q *delayqueue.Queue) {
			_ = q.Work(ctx, func(context.Context, *delayqueue.Delivery) error { return nil }, delayqueue.WorkerConfig{})
		})},
		"delayqueue.Queue.Work (with a message)": {byLease, func(p *process) func(context.Context) {
			q, handling := p.queue(), make(chan struct{})
			_, err := q.Put(context.Background(), delayqueue.Message{ID: "message"})
			require.NoError(p.t, err)
			working, end := context.WithCancel(context.Background())
			ended := p.begin(func() {
				_ = q.Work(working, func(ctx context.Context, _ *delayqueue.Delivery) error {
					close(handling)
					<-ctx.Done()
					return nil
				}, delayqueue.WorkerConfig{Grace: -1, MaxAttempts: 1})
			})
			<-handling
			return func(ctx context.Context) {
				defer context.AfterFunc(ctx, end)()
				<-ended
			}
		}},
		"delayqueue.Queue.Shutdown": {byContext, ofBusyQueue(func(ctx context.Context, q *delayqueue.Queue) { _ = q.Shutdown(ctx) })},
		"delayqueue.Queue.Close":    {atOnce, ofBusyQueue(func(_ context.Context, q *delayqueue.Queue) { _ = q.Close() })},
	}
}

// ofBusyQueue prepares a call on a queue with a message in a handler, which ends once the
// server is well again.
func ofBusyQueue(call func(context.Context, *delayqueue.Queue)) func(*process) func(context.Context) {
	return func(p *process) func(context.Context) {
		q, handling, healed := p.queue(), make(chan struct{}), p.healed
		_, err := q.Put(context.Background(), delayqueue.Message{ID: "message"})
		require.NoError(p.t, err)
		p.begin(func() {
			_ = q.Work(context.Background(), func(context.Context, *delayqueue.Delivery) error {
				close(handling)
				<-healed
				return nil
			}, delayqueue.WorkerConfig{MaxHold: never})
		})
		<-handling
		return func(ctx context.Context) { call(ctx, q) }
	}
}
