package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Multi is a handle on several locks that are taken together, all or none. It is cheap,
// like a [Mutex], and its methods are safe for concurrent use.
//
// The locks are acquired one after the other, in the order of their names; those already
// acquired are held and renewed meanwhile. Every Multi in every process uses this order,
// whatever order it was given, so no two of them deadlock. Two cases are not covered.
// Locks of the same name in different stores are taken in the order given, which should
// be the same everywhere. A holder of one lock that requests others has an order of its
// own.
//
// Multi waits for one lock after the other: while it waits for the last one, it keeps the
// first ones from others. If that is too much, use TryLock.
type Multi struct {
	given  []*Mutex
	sorted []*Mutex // given without duplicates, in the order in which the locks are taken
	// place maps each index of given to its index in sorted.
	place []int
	err   error // why given is invalid, or nil
}

// All returns a handle on the members together. They may be of any kind that a [Mutex]
// stands for, and of several Lockers. A lock that is given twice is taken once, so code
// that moves something between two places need not check whether they are the same. Each
// lock is held with its own [Options].
//
// If two handles exclude each other, such as both sides of a read-write lock, or if there
// are no members, the methods that acquire return an error. All panics if a member is
// nil.
func All(members ...*Mutex) *Multi {
	m := &Multi{given: slices.Clone(members), place: make([]int, len(members))}
	for _, member := range m.given {
		if member == nil {
			panic("lock: All: a member is nil")
		}
		if !slices.ContainsFunc(m.sorted, member.is) {
			m.sorted = append(m.sorted, member)
		}
	}
	slices.SortStableFunc(m.sorted, func(a, b *Mutex) int { return cmp.Compare(a.name, b.name) })
	for i, member := range m.given {
		m.place[i] = slices.IndexFunc(m.sorted, member.is)
	}
	m.err = m.validate()
	return m
}

// validate returns an error if the members cannot be held together.
func (m *Multi) validate() error {
	if len(m.sorted) == 0 {
		return errors.New("lock: All needs at least one lock")
	}
	for i, member := range m.sorted {
		for _, next := range m.sorted[i+1:] {
			if member.blocks(next) {
				return fmt.Errorf("lock: a %v and a %v both called %q cannot be held together: the second would wait for the first", member.kind, next.kind, member.name)
			}
		}
	}
	return nil
}

// is reports whether both are handles on one lock, with one ownership.
func (m *Mutex) is(other *Mutex) bool {
	return m.locker == other.locker && m.kind == other.kind && m.name == other.name
}

// blocks reports whether a holder of m could not get other. It cannot detect two stores
// on one server.
func (m *Mutex) blocks(other *Mutex) bool {
	if m.name != other.name || !same(m.locker.store, other.locker.store) {
		return false
	}
	return m.kind != KindRead || other.kind != KindRead
}

// same reports whether two stores are the same, if they can be compared.
func same(a, b driver.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Lock acquires every lock and waits for them as long as ctx lives, even while a store
// does not answer. If ctx ends first, the error is that of [Mutex.Lock] for the lock
// being acquired. After any error none of the locks is kept.
func (m *Multi) Lock(ctx context.Context) (*MultiLease, error) {
	return m.acquire(ctx, func(ctx context.Context, member *Mutex) (*Lease, error) { return member.Lock(ctx) })
}

// TryLock acquires every lock if all of them are free. Otherwise it returns at once a
// *[NotAcquiredError] for the first one that is not. The request for each lock takes at
// most [Config.RequestTimeout], and so does the Unlock of those already taken. TryLock
// ends with the first lock whose store does not answer.
func (m *Multi) TryLock(ctx context.Context) (*MultiLease, error) {
	return m.acquire(ctx, func(ctx context.Context, member *Mutex) (*Lease, error) { return member.TryLock(ctx) })
}

// LockWithin acquires every lock and waits for them at most wait in all, and no longer
// than ctx lives. After wait it returns a *[NotAcquiredError], or an error that matches
// [ErrUnavailable] if a store does not answer. If wait is zero or negative, LockWithin is
// TryLock.
func (m *Multi) LockWithin(ctx context.Context, wait time.Duration) (*MultiLease, error) {
	begin := time.Now()
	return m.acquire(ctx, func(ctx context.Context, member *Mutex) (*Lease, error) {
		return member.LockWithin(ctx, wait-time.Since(begin))
	})
}

// Do waits for the locks like Lock, calls f while it holds all of them, and unlocks
// afterwards, even if f panics. The context of f carries the ownership of all. It ends
// with ctx, and with cause [ErrLost] if one of the leases is lost. Do returns f's error,
// joined with the *[LostError] of a lease that was lost before f returned.
func (m *Multi) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Unlock(ctx)) }()
	held, cancel := lease.within(ctx)
	defer cancel()
	return f(held)
}

// acquire takes the locks one by one, and releases those taken if one cannot be taken.
func (m *Multi) acquire(ctx context.Context, take func(context.Context, *Mutex) (*Lease, error)) (*MultiLease, error) {
	if m.err != nil {
		return nil, m.err
	}
	l := &MultiLease{multi: m, lost: make(chan struct{})}
	// A loss ends the wait for the remaining locks.
	l.held, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.held, func() { cancel(context.Cause(l.held)) })()
	for _, member := range m.sorted {
		lease, err := take(waiting, member)
		if err != nil {
			l.unlockTaken(ctx)
			return nil, err
		}
		l.add(lease)
		waiting = lease.own.with(waiting) //nolint:fatcontext // a value for each lock
	}
	if err := l.Err(); err != nil {
		l.unlockTaken(ctx)
		return nil, err
	}
	return l, nil
}

// MultiLease is the hold of several locks that were taken together. Its methods are safe
// for concurrent use.
type MultiLease struct {
	multi  *Multi
	leases []*Lease // parallel to multi.sorted

	// held ends when a lease is lost, or with Unlock. It carries no ownership.
	held context.Context
	end  context.CancelCauseFunc

	lost     chan struct{}
	lostOnce sync.Once
	stops    []func() bool // cancel the callbacks that watch the leases

	done  atomic.Bool
	mu    sync.Mutex
	ended error // guarded by mu; Err's result after Unlock
}

// add appends a lease, whose loss becomes the loss of l.
func (l *MultiLease) add(lease *Lease) {
	l.leases = append(l.leases, lease)
	l.stops = append(l.stops, context.AfterFunc(lease.own.lease.Context(), func() { l.note(lease) }))
}

// note ends l if the lease was lost.
func (l *MultiLease) note(lease *Lease) {
	if err := lease.Err(); errors.Is(err, ErrLost) {
		l.lostOnce.Do(func() { close(l.lost) })
		l.end(err)
	}
}

// unlockTaken unlocks the locks already taken. Errors are ignored; cleanup retries.
func (l *MultiLease) unlockTaken(ctx context.Context) {
	_ = l.Unlock(ctx)
}

// Context returns a context that ends with cause [ErrLost] when one of the leases is
// lost, and also with Unlock. It carries the ownership of every lock, so that each can be
// taken again with it. It has the values, but not the cancellation, of the context that
// the locks were acquired with.
func (l *MultiLease) Context() context.Context { return l.with(l.held) }

// with returns a context derived from ctx that carries the ownership of every lock.
func (l *MultiLease) with(ctx context.Context) context.Context {
	for _, lease := range l.leases {
		ctx = lease.own.with(ctx) //nolint:fatcontext // a value for each lock
	}
	return ctx
}

// within returns a context derived from ctx that carries the ownership of every lock and
// also ends with the leases.
func (l *MultiLease) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(l.with(ctx))
	stop := context.AfterFunc(l.held, func() { cancel(context.Cause(l.held)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Lost is closed when one of the leases is lost. The others are still held and renewed
// until Unlock. Lost stays open if the locks are unlocked first.
func (l *MultiLease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while every lock is held, and then why that ended: the *[LostError] of
// a lost lease, or an error that matches [ErrReleased] after Unlock.
func (l *MultiLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return l.ended
	}
	return l.loss()
}

// loss returns the first loss among the leases, or nil.
func (l *MultiLease) loss() error {
	for _, lease := range l.leases {
		if err := lease.Err(); errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}

// Until returns the instant up to which all leases are valid if no renewal follows.
// Renewals extend it.
func (l *MultiLease) Until() time.Time {
	return slices.MinFunc(l.leases, func(a, b *Lease) int { return a.Until().Compare(b.Until()) }).Until()
}

// Valid reports whether all leases are valid now; see [Lease.Valid].
func (l *MultiLease) Valid() bool {
	return l.Err() == nil && !slices.ContainsFunc(l.leases, func(lease *Lease) bool { return !lease.Valid() })
}

// Beat reports to the watchdog that the holder is alive. See [Options.Heartbeat].
func (l *MultiLease) Beat() {
	for _, lease := range l.leases {
		lease.Beat()
	}
}

// Tokens returns the fencing tokens of the locks, in the order in which [All] received
// them; see [Lease.Token]. Tokens of different locks cannot be compared: pass each
// resource the token of its own lock.
func (l *MultiLease) Tokens() []int64 {
	tokens := make([]int64, len(l.multi.given))
	for i, place := range l.multi.place {
		tokens[i] = l.leases[place].Token()
	}
	return tokens
}

// Unlock releases every lock, all at the same time, and returns their errors joined; see
// [Lease.Unlock]. A failure does not affect the others. A second Unlock returns
// [ErrNotHeld].
func (l *MultiLease) Unlock(ctx context.Context) error {
	if l.done.Swap(true) {
		return ErrNotHeld
	}
	errs := make([]error, len(l.leases))
	var work sync.WaitGroup
	for i, lease := range l.leases {
		work.Go(func() { errs[i] = lease.Unlock(ctx) })
	}
	work.Wait()
	for i, stop := range l.stops {
		if stop() { // the lease lives on under another hold, or note has not run yet
			l.note(l.leases[i])
		}
	}
	l.mu.Lock()
	l.ended = cmp.Or(l.loss(), ErrReleased)
	l.mu.Unlock()
	l.end(ErrReleased)
	return errors.Join(errs...)
}
