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
)

// Multi is a handle on several locks that are taken together: all of them or none.
// It is cheap, as a [Mutex] is, and its methods may be called at the same time.
//
// They are waited for one after the other, in the order of their names, while those
// before are held and kept alive. All who take several locks by Multi do so in that
// order, in every process, so that none of them waits for another in a circle,
// whatever order each was given. Two things are beyond it: locks of the same name in
// different stores are taken in the order given, which should be the same everywhere;
// and whoever holds one lock already, and asks for others, has an order of its own.
//
// Waiting by Multi is no more than waiting for each lock: on the way to the last one,
// the first ones are kept from everybody else. Where that is too much, use TryLock.
type Multi struct {
	given  []*Mutex
	sorted []*Mutex // given, each lock once, in the order in which they are taken
	// place has for each of given its index in sorted.
	place []int
	err   error // what is wrong with given
}

// All returns a handle on the members together: of any kind that a [Mutex] stands
// for, of one [Locker] or of several. A lock that is given twice is taken once; so
// whoever moves something from one place to another need not ask whether they are
// the same. Each is held with its own [Options].
//
// Two handles that are in each other's way, as both sides of a read-write lock are,
// and a Multi of nothing, are reported by the methods that acquire. All panics if a
// member is nil.
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

// validate says what is wrong with the members.
func (m *Multi) validate() error {
	if len(m.sorted) == 0 {
		return errors.New("lock: All of no locks: give it at least one")
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

// is reports whether both are handles on one lock that one owner would share.
func (m *Mutex) is(other *Mutex) bool {
	return m.locker == other.locker && m.kind == other.kind && m.name == other.name
}

// blocks reports whether holding m keeps its holder itself from getting other, as
// far as that can be seen here: two stores may be one server.
func (m *Mutex) blocks(other *Mutex) bool {
	if m.name != other.name || !same(m.locker.store, other.locker.store) {
		return false
	}
	return m.kind != KindRead || other.kind != KindRead
}

// same reports whether two stores are one, as far as they can be compared.
func same(a, b Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// Lock acquires every lock and waits for them as long as ctx lives, also while a store
// does not answer. If ctx ends
// first, the error is that of [Mutex.Lock] for the lock whose turn it was. Whatever the
// error, none of the locks is kept.
func (m *Multi) Lock(ctx context.Context) (*MultiLease, error) {
	return m.acquire(ctx, func(ctx context.Context, member *Mutex) (*Lease, error) { return member.Lock(ctx) })
}

// TryLock acquires every lock if all of them are free, and otherwise returns a
// *[NotAcquiredError] at once, that of the first one that is not. Each lock has
// [Config.RequestTimeout] to be answered for, and so has the Unlock of those that were
// taken; the first that is not answered for ends it.
func (m *Multi) TryLock(ctx context.Context) (*MultiLease, error) {
	return m.acquire(ctx, func(ctx context.Context, member *Mutex) (*Lease, error) { return member.TryLock(ctx) })
}

// LockWithin acquires every lock and waits for them at most wait in all, and no
// longer than ctx lives. After wait it returns a *[NotAcquiredError], or an error that
// matches [ErrUnavailable] if a store does not answer. With wait zero or negative it is
// TryLock.
func (m *Multi) LockWithin(ctx context.Context, wait time.Duration) (*MultiLease, error) {
	begin := time.Now()
	return m.acquire(ctx, func(ctx context.Context, member *Mutex) (*Lease, error) {
		return member.LockWithin(ctx, wait-time.Since(begin))
	})
}

// Do calls f while it holds every lock, for which it waits like Lock, and unlocks
// them afterwards, also if f panics. The context that f gets ends with ctx, and with
// cause [ErrLost] if one of the leases is lost; it carries the ownership of all. Do
// returns f's error, joined with the *[LostError] of a lease that was lost before f
// returned.
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

// acquire takes the locks one by one. What it has taken it gives back if it cannot
// have them all.
func (m *Multi) acquire(ctx context.Context, take func(context.Context, *Mutex) (*Lease, error)) (*MultiLease, error) {
	if m.err != nil {
		return nil, m.err
	}
	l := &MultiLease{multi: m, lost: make(chan struct{})}
	// A loss ends the wait for the locks that are still to come.
	l.held, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.held, func() { cancel(context.Cause(l.held)) })()
	for _, member := range m.sorted {
		lease, err := take(waiting, member)
		if err != nil {
			l.giveBack(ctx)
			return nil, err
		}
		l.add(lease)
		waiting = lease.own.with(waiting) //nolint:fatcontext // a value for each lock
	}
	if err := l.Err(); err != nil {
		l.giveBack(ctx)
		return nil, err
	}
	return l, nil
}

// MultiLease is the hold of several locks that were taken together. Its methods may
// be called at the same time.
type MultiLease struct {
	multi  *Multi
	leases []*Lease // those of multi.sorted

	// held ends when a lease is lost, or by Unlock. It carries no ownership.
	held context.Context
	end  context.CancelCauseFunc

	lost     chan struct{}
	lostOnce sync.Once
	stops    []func() bool // of what waits for the end of the leases

	done  atomic.Bool
	mu    sync.Mutex
	ended error // guarded by mu; what Err returns after Unlock
}

// add makes the loss of one more lease that of them all.
func (l *MultiLease) add(lease *Lease) {
	l.leases = append(l.leases, lease)
	l.stops = append(l.stops, context.AfterFunc(lease.own.lease.Context(), func() { l.note(lease) }))
}

// note makes the loss of a lease known, if that is how it has ended.
func (l *MultiLease) note(lease *Lease) {
	if err := lease.Err(); errors.Is(err, ErrLost) {
		l.lostOnce.Do(func() { close(l.lost) })
		l.end(err)
	}
}

// giveBack unlocks what was taken for nothing. Errors are ignored: the caller does not
// hold the locks, and the cleanup tries again.
func (l *MultiLease) giveBack(ctx context.Context) {
	_ = l.Unlock(ctx)
}

// Context returns a context that ends with cause [ErrLost] when one of the leases is
// lost, and also with Unlock. It carries the ownership of every lock, so that each
// can be taken again with it, and the values, but not the end, of the context that
// the locks were acquired with.
func (l *MultiLease) Context() context.Context { return l.with(l.held) }

// with returns a context derived from ctx that carries the ownership of every lock.
func (l *MultiLease) with(ctx context.Context) context.Context {
	for _, lease := range l.leases {
		ctx = lease.own.with(ctx) //nolint:fatcontext // a value for each lock
	}
	return ctx
}

// within returns a context derived from ctx that carries the ownership of every lock
// and ends with the leases as well.
func (l *MultiLease) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(l.with(ctx))
	stop := context.AfterFunc(l.held, func() { cancel(context.Cause(l.held)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Lost is closed when one of the leases is lost. The others are held, and kept
// alive, until Unlock. It stays open if they are unlocked first.
func (l *MultiLease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while every lock is held, and then why that ended: the
// *[LostError] of one that was lost, or an error that says that they were unlocked.
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

// Until returns the instant up to which all leases may be relied on if nothing more
// is heard from the store. Renewals move it on.
func (l *MultiLease) Until() time.Time {
	return slices.MinFunc(l.leases, func(a, b *Lease) int { return a.Until().Compare(b.Until()) }).Until()
}

// Valid reports whether all leases may be relied on at this instant; see
// [Lease.Valid].
func (l *MultiLease) Valid() bool {
	return l.Err() == nil && !slices.ContainsFunc(l.leases, func(lease *Lease) bool { return !lease.Valid() })
}

// Beat tells the watchdog that the holder is alive. See [Options.Heartbeat].
func (l *MultiLease) Beat() {
	for _, lease := range l.leases {
		lease.Beat()
	}
}

// Tokens returns the fencing tokens of the locks, in the order in which [All] was
// given them; see [Lease.Token]. Tokens of different locks say nothing about each
// other: hand each resource that of its own lock.
func (l *MultiLease) Tokens() []int64 {
	tokens := make([]int64, len(l.multi.given))
	for i, place := range l.multi.place {
		tokens[i] = l.leases[place].Token()
	}
	return tokens
}

// Unlock gives every lock back, all at the same time, and returns their errors
// joined; those are as with [Lease.Unlock]. One that fails keeps none of the others.
// A second Unlock returns [ErrNotHeld].
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
		if stop() { // the lease goes on, under another hold of its owner; or its end is not noted yet
			l.note(l.leases[i])
		}
	}
	l.mu.Lock()
	l.ended = cmp.Or(l.loss(), ErrReleased)
	l.mu.Unlock()
	l.end(ErrReleased)
	return errors.Join(errs...)
}
