package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Multi is a handle on several locks that are taken together, all or none. They are acquired
// in the order of their names, so that no two Multis deadlock; those already acquired are held
// meanwhile. Not covered are locks of one name in different stores, which are taken in the
// order given, and holders of one lock that request others.
type Multi struct {
	given  []*Mutex
	sorted []*Mutex // given without duplicates, in the order in which the locks are taken
	// place maps each index of given to its index in sorted.
	place   []int
	err     error // why given is invalid, or nil
	maxWait maxWait
}

// All returns a handle on the members together: of any kind, permits as well, and of several
// Lockers. Each is waited for and held as its own MaxWait and Options say. A lock that is
// given twice is taken once. If one member may block another, the methods return an error.
// All panics if one is nil.
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
	for i, member := range m.given {
		for _, next := range m.given[i+1:] {
			switch {
			case !member.blocks(next):
			case member.kind == driver.KindPermit && next.kind == driver.KindPermit:
				return fmt.Errorf("lock: All has permits of %q twice: take them together, with Permits.Several", member.name)
			default:
				return fmt.Errorf("lock: a %v and a %v both called %q cannot be held together: the second may wait for the first", member.kind, next.kind, member.name)
			}
		}
	}
	return nil
}

// is reports whether both are handles on one lock, with one ownership.
func (m *Mutex) is(other *Mutex) bool {
	return ownershipKey(m.locker, m.kind, m.name) == ownershipKey(other.locker, other.kind, other.name)
}

// blocks reports whether a holder of m might wait for itself to get other: a reader, too, behind
// a writer that came in between. It cannot detect two stores on one server.
func (m *Mutex) blocks(other *Mutex) bool {
	if m.is(other) {
		return !kinds[m.kind].reentrant
	}
	return m.name == other.name && same(m.locker.store, other.locker.store)
}

// same reports whether two stores are the same, if they can be compared.
func same(a, b driver.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// MaxWait returns a handle that waits at most d in all, as [Mutex.MaxWait].
func (m *Multi) MaxWait(d time.Duration) *Multi {
	with := *m
	with.maxWait = limitedTo(d)
	return &with
}

// Lock acquires every lock as [Mutex.Lock] does. After an error none is kept.
func (m *Multi) Lock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, m.maxWait.limit())
}

// TryLock acquires every lock if all are free. All of it takes at most the longest
// [Config.RequestTimeout] of the members; the rest is released in the background.
func (m *Multi) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, 0)
}

// Do is [Mutex.Do] for all the locks.
func (m *Multi) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return do(ctx, m.Lock, f)
}

// errSlow is the cause with which the requests of a limited wait end.
var errSlow = fmt.Errorf("%w: the locks took longer than Config.RequestTimeout together", ErrUnavailable)

// requestTimeout is the longest of the members'.
func (m *Multi) requestTimeout() (longest time.Duration) {
	for _, member := range m.sorted {
		longest = max(longest, member.locker.config.RequestTimeout)
	}
	return longest
}

// acquire takes the locks one by one, and releases those taken if one cannot be taken.
func (m *Multi) acquire(ctx context.Context, wait time.Duration) (*Lease, error) {
	switch {
	case m.err != nil:
		return nil, m.err
	case len(m.sorted) == 0: // the zero value, too
		return nil, errors.New("lock: All needs at least one lock")
	}
	begin := time.Now()
	if request := m.requestTimeout(); wait < forever-request {
		limited, cancel := context.WithDeadlineCause(ctx, begin.Add(wait+request), errSlow)
		defer cancel()
		ctx = limited
	}
	l := &together{multi: m, lost: make(chan struct{})}
	// A loss ends the wait for the remaining locks.
	l.held, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.held, func() { cancel(context.Cause(l.held)) })()
	granted := false
	defer func() { // also after a panic, or the runtime.Goexit of an observer
		if !granted {
			_ = l.unlock(ctx, false) // what is not released when ctx ends is left to the cleanup
		}
	}()
	for _, member := range m.sorted {
		left := member.maxWait.limit()
		if wait < forever {
			left = min(left, max(wait-time.Since(begin), 0))
		}
		lease, err := member.acquire(waiting, left)
		if err != nil {
			return nil, err
		}
		l.add(lease)
		waiting = lease.own().with(waiting) //nolint:fatcontext // a value for each lock
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	granted = true
	return &Lease{holding: l}, nil
}

// together is the hold of several locks that were taken together.
type together struct {
	multi  *Multi
	leases []*Lease // parallel to multi.sorted

	// held ends when a lease is lost, or with the release. It carries no ownership.
	held context.Context
	end  context.CancelCauseFunc

	lost     chan struct{}
	lostOnce sync.Once
	stops    []func() bool // cancel the callbacks that watch the leases

	mu    sync.Mutex
	ended error // guarded by mu; Err's result after the release
}

// add appends a lease, whose loss becomes the loss of l.
func (l *together) add(lease *Lease) {
	l.leases = append(l.leases, lease)
	l.stops = append(l.stops, context.AfterFunc(lease.own().lease.Context(), func() { l.note(lease) }))
}

// note ends l if the lease was lost.
func (l *together) note(lease *Lease) {
	if err := lease.Err(); errors.Is(err, ErrLost) {
		l.end(err) // first, so that a receiver of lost finds the context ended
		l.lostOnce.Do(func() { close(l.lost) })
	}
}

func (l *together) state() state { return l }

func (l *together) with(ctx context.Context) context.Context {
	for _, lease := range l.leases {
		ctx = lease.own().with(ctx) //nolint:fatcontext // a value for each lock
	}
	return ctx
}

func (l *together) Context() context.Context { return l.held }

// Lost is closed when one of the leases is lost. The others are held until the release.
func (l *together) Lost() <-chan struct{} { return l.lost }

func (l *together) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return l.ended
	}
	return l.loss()
}

// loss returns the first loss among the leases, or nil.
func (l *together) loss() error {
	for _, lease := range l.leases {
		if err := lease.Err(); errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}

func (l *together) Until() time.Time {
	return slices.MinFunc(l.leases, func(a, b *Lease) int { return a.Until().Compare(b.Until()) }).Until()
}

func (l *together) Valid() bool {
	return l.Err() == nil && !slices.ContainsFunc(l.leases, func(lease *Lease) bool { return !lease.Valid() })
}

func (l *together) Beat() {
	for _, lease := range l.leases {
		lease.Beat()
	}
}

func (l *together) Key() string {
	var names []string
	for _, member := range l.multi.given {
		names = append(names, member.name)
	}
	return strings.Join(names, ",")
}

func (l *together) Owner() string { return "" }

func (l *together) tokens() []int64 {
	tokens := make([]int64, len(l.multi.given))
	for i, place := range l.multi.place {
		tokens[i] = l.leases[place].Token()
	}
	return tokens
}

// unlock releases every lock, all at the same time, and returns their errors joined.
func (l *together) unlock(ctx context.Context, used bool) error {
	errs := make([]error, len(l.leases))
	var work sync.WaitGroup
	for i, lease := range l.leases {
		unlock := func() error { return lease.unlock(ctx, used) }
		work.Go(func() { errs[i] = lease.own().locker.protect("an Unlock", lease.Name(), unlock) })
	}
	work.Wait()
	for i, stop := range l.stops {
		stop() // the lease may live on under another hold
		l.note(l.leases[i])
	}
	l.mu.Lock()
	l.ended = cmp.Or(l.loss(), ErrReleased)
	l.mu.Unlock()
	l.end(ErrReleased)
	return errors.Join(errs...)
}
