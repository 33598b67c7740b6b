package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Options says how one lock is held. Its zero value takes the TTL from the
// [Locker] and keeps the lease alive until it is unlocked.
type Options struct {
	// TTL replaces [Config.TTL] for this lock. Default: the locker's.
	TTL time.Duration
	// Fixed turns renewal off: the lease is lost when TTL is over.
	Fixed bool
	// MaxHold ends the lease so long after its grant, whoever is alive. The store
	// has it for up to a TTL more. Default: no limit.
	MaxHold time.Duration
	// Alive is asked before each renewal, in a goroutine of its own, whether the
	// holder still is. If it says false the lease is lost at once; if it does not
	// return, when the lease's time is over. Default: not asked.
	Alive func() bool
	// Heartbeat is how often, at least, the holder has to call [Lease.Beat], or
	// the lease is lost. Default: never.
	Heartbeat time.Duration
	// Retry says when a waiter asks the store again although nothing was heard.
	// Default: every [Config.Poll].
	Retry Retry
	// Passes lets Unlock pass the lock on to the next in this process that waits for
	// it with Passes and the same TTL, without a word to the store: a hand-over among
	// many goroutines of one process then costs microseconds. After so many at most, or
	// [Options.PassFor], the lock is released, so that the waiters of other processes,
	// who wait meanwhile, get their turn; sooner where more tokens were asked for than
	// there are microseconds. Each holder has a lease with rules of its
	// own, and a larger fencing token than the one before, but [Lease.Owner] stays. It
	// is for [Locker.Mutex], renewed, and does nothing on stores that reserve no
	// tokens, as quorums and plain locks. At most [MaxPasses]. Default: 0, never.
	Passes int
	// PassFor is how long after the store's grant the lock is passed on at most.
	// Default: 1 s.
	PassFor time.Duration
	// OnLost is called once if the lease is lost, in a goroutine of its own, with
	// a *[LostError].
	OnLost func(error)
}

// passFor is PassFor, with its default filled in.
func (o *Options) passFor() time.Duration { return cmp.Or(o.PassFor, DefaultPassFor) }

// validate says what is wrong with o for a kind of lock, on a wheel with the given
// tick.
func (o *Options) validate(kind Kind, tick time.Duration) error {
	switch {
	case o.Passes < 0 || o.Passes > MaxPasses:
		return fmt.Errorf("lock: Passes %d is outside 0 … %d", o.Passes, MaxPasses)
	case o.PassFor < 0:
		return fmt.Errorf("lock: PassFor %v is negative; accepted are positive durations, 0 for %v", o.PassFor, DefaultPassFor)
	case o.Passes > 0 && kind != KindMutex:
		return fmt.Errorf("lock: Passes is for the mutex; a %v is not passed on", kind)
	case o.Passes > 0 && o.Fixed:
		return errors.New("lock: Passes needs a lease that is renewed; leave Fixed out")
	case o.MaxHold < 0:
		return fmt.Errorf("lock: MaxHold %v is negative; accepted are positive durations, 0 for no limit", o.MaxHold)
	case o.Heartbeat < 0:
		return fmt.Errorf("lock: Heartbeat %v is negative; accepted are positive durations, 0 for none", o.Heartbeat)
	case o.TTL != 0:
		return validateTTL(o.TTL, tick)
	}
	return nil
}

// Mutex is a handle on one reentrant lock by name, or on one side of a
// [ReadWrite] lock. It is cheap: make one where it is needed. Any number of handles
// of one name are the same lock. Its methods may be called at the same time.
//
// Every method that acquires takes a context. If that context carries the
// ownership of this very lock (see [Lease.Context]), the lock is taken once more
// without waiting, and must be unlocked once more.
type Mutex struct {
	locker       *Locker
	kind         Kind
	name         string
	options      Options
	writersFirst bool  // see [ReadWrite.WritersFirst]
	several      int64 // permits of each lease, if not one; see [Permits.Several]
}

// Mutex returns a handle on the lock called name. A name that [ValidateName]
// refuses is reported by the methods that acquire.
func (l *Locker) Mutex(name string) *Mutex {
	return &Mutex{locker: l, kind: KindMutex, name: name}
}

// With returns a handle on the same lock with these options instead.
func (m *Mutex) With(o Options) *Mutex {
	with := *m
	with.options = o
	return &with
}

// Name returns the lock's name.
func (m *Mutex) Name() string { return m.name }

// Lock acquires the lock and waits for it as long as ctx lives, also while the store
// does not answer: requests are sent again with backoff. If ctx ends
// first, the error matches the context's cause, and [ErrNotAcquired] as well unless
// nothing was asked yet, or a request was under way: what that was granted is given
// back in the background. ctx bounds the waiting only: the lease outlives it.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, forever)
}

// TryLock acquires the lock if it is free, and otherwise returns a
// *[NotAcquiredError] at once. If the store does not answer within
// [Config.RequestTimeout], the error matches [ErrUnavailable].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, 0)
}

// LockWithin acquires the lock and waits for it at most wait, and no longer than
// ctx lives. After wait it returns a *[NotAcquiredError]. An outage of the store that is
// shorter than wait costs nothing but its time; in a longer one the error matches
// [ErrUnavailable]. A request that is in flight when wait is over still has its
// [Config.RequestTimeout]. With wait zero or negative it is TryLock.
func (m *Mutex) LockWithin(ctx context.Context, wait time.Duration) (*Lease, error) {
	return m.acquire(ctx, max(wait, 0))
}

// Do calls f while it holds the lock, for which it waits like Lock, and unlocks
// afterwards, also if f panics. The context that f gets ends with ctx, and with
// cause [ErrLost] if the lease is lost; it carries the ownership. Do returns f's
// error, joined with the *[LostError] if the lease was lost before f returned:
// then another holder may have been at work beside f.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.use(ctx, f)
}

// forever is a wait without a limit of its own.
const forever = time.Duration(math.MaxInt64)

// acquire takes the lock, once more if ctx owns it already.
func (m *Mutex) acquire(ctx context.Context, wait time.Duration) (*Lease, error) {
	l := m.locker
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	a := acquisition{options: m.options, ctx: ctx, waitCtx: ctx, wait: wait > 0}
	if wait > 0 && wait < forever {
		waitCtx, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
		defer cancel()
		a.waitCtx = waitCtx
	}
	if o := m.ownershipIn(ctx); o != nil {
		if lease, err := o.reacquire(a); lease != nil || err != nil {
			return lease, err
		}
	}
	if err := m.request(&a); err != nil {
		return nil, err
	}
	return l.acquire(&a)
}

// ready returns an error if there is a reason not to ask the store at all.
func (m *Mutex) ready(ctx context.Context) error {
	if err := m.options.validate(m.kind, m.locker.wheel.Tick()); err != nil {
		return err
	}
	if m.several < 0 || m.several > MaxSeveral {
		return &CountError{Count: m.several, Min: 1, Max: MaxSeveral}
	}
	return m.locker.ready(ctx, m.name)
}

// ownershipIn returns the ownership that ctx carries, by which the lock is taken once
// more, or nil.
func (m *Mutex) ownershipIn(ctx context.Context) *ownership {
	if m.kind == KindPermit {
		return nil
	}
	return ownershipIn(ctx, m.locker, m.kind, m.name)
}

// request gives the acquisition the hold that it is to ask for.
func (m *Mutex) request(a *acquisition) error {
	l := m.locker
	a.hold = l.newHold(m.kind, m.name, cmp.Or(m.options.TTL, l.config.TTL))
	switch m.kind {
	case KindMutex:
		a.hold.Spare = int64(m.options.Passes)
	case KindRead:
		a.hold.Under = writerIn(a.ctx, l, m.name)
	case KindWrite:
		if err := refuseUpgrade(a.ctx, l, m.name); err != nil {
			return err
		}
	case KindPermit:
		a.hold.Owner = newPermitOwner(m.several)
	}
	if a.wait && (m.kind == KindFair || m.writersFirst) {
		a.hold.Wait = placeTTL
	}
	return nil
}
