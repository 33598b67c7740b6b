package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/reentry"
	"github.com/leasewheel/leasewheel/lock/retry"
)

// Mutex is a handle on what can be held: a reentrant lock, one side of a [ReadWrite] lock, or
// permits of [Permits], which are not reentrant.
type Mutex struct {
	locker  *Locker
	kind    driver.Kind
	name    string
	options Options
	maxWait maxWait
	// complete completes the hold of an acquisition, or refuses it; nil: nothing is to be added.
	complete func(*acquisition) error
}

// Mutex returns a handle on the lock called name.
func (l *Locker) Mutex(name string) *Mutex {
	return &Mutex{locker: l, kind: driver.KindMutex, name: name}
}

// With returns a handle on the same lock that uses these options instead.
func (m *Mutex) With(o Options) *Mutex {
	with := *m
	with.options = o
	return &with
}

// MaxWait returns a handle on the same lock whose Lock, Do and Go wait for it at most d. Then
// they return a *[NotAcquiredError], or an error that matches [ErrUnavailable] if the store
// does not answer; a request in flight still has its [Config.RequestTimeout]. If d is not
// positive, they acquire the lock only if it is free, as TryLock does.
func (m *Mutex) MaxWait(d time.Duration) *Mutex {
	with := *m
	with.maxWait = limitedTo(d)
	return &with
}

// Name returns the lock's name.
func (m *Mutex) Name() string { return m.name }

// Lock acquires the lock and waits for it as long as ctx lives. If ctx ends first, the error
// matches its cause. It also matches [ErrNotAcquired] if the latest request was refused, and
// [ErrUnavailable] if it failed. A grant to a request in flight is released in the background.
// The lease outlives ctx.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, m.maxWait.limit())
}

// TryLock acquires the lock if it is free, and otherwise returns a *[NotAcquiredError] at
// once, or an error that matches [ErrUnavailable].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, 0)
}

// Do waits for the lock like Lock, calls f, and unlocks afterwards, even if f panics. The
// context of f carries the ownership. It ends with ctx, and with cause [ErrLost] if the lease
// is lost; another holder may then be active. Do returns f's error and, unless that
// has it, the *[LostError] of a lease that was lost before f returned. The Unlock has a
// [Config.RequestTimeout] of its own, also after ctx has ended. Do panics if f is nil. For a
// token use Lock.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return do(ctx, m.Lock, f)
}

// acquire takes the lock, once more if ctx already carries its ownership.
func (m *Mutex) acquire(ctx context.Context, wait time.Duration) (*Lease, error) {
	own := ownershipIn(ctx, m.locker, m.kind, m.name)
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	a := acquisition{request: request{locker: m.locker}, options: m.options, ctx: ctx}
	defer a.limitWait(wait)()
	if lease, err := m.again(&a, own); lease != nil || err != nil {
		return lease, err
	}
	return m.locker.acquire(&a)
}

// ready returns an error if no request should be sent.
func (m *Mutex) ready(ctx context.Context) error {
	if err := m.options.validate(m.kind, m.locker.minTTL); err != nil {
		return err
	}
	return m.locker.ready(ctx, m.name)
}

// ready returns an error if no request for a name should be sent.
func (l *Locker) ready(ctx context.Context, name string) error {
	if err := driver.ValidateName(name); err != nil {
		return err
	}
	if err := context.Cause(l.closed); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("lock: %q was not requested: %w", name, err)
	}
	return nil
}

// ownershipIn returns the ownership of the lock that ctx carries, or nil.
func ownershipIn(ctx context.Context, l *Locker, kind driver.Kind, name string) *ownership {
	o, _ := ctx.Value(ownershipKey(l, kind, name)).(*ownership)
	return o
}

// ownershipKey returns the context key of a lock's ownership. A fair lock is the mutex of its name.
func ownershipKey(l *Locker, kind driver.Kind, name string) reentry.Key {
	if kind == driver.KindFair {
		kind = driver.KindMutex
	}
	return reentry.Key{Locker: l, Kind: kind, Name: name}
}

// forever is a wait without a time limit.
const forever = time.Duration(math.MaxInt64)

// maxWait is how long a handle waits; zero: for ever.
type maxWait struct{ less time.Duration } // than forever

func limitedTo(d time.Duration) maxWait { return maxWait{forever - max(d, 0)} }

func (w maxWait) limit() time.Duration { return forever - w.less }

// Options configures how one lock is held. The zero value renews until Unlock.
type Options struct {
	// TTL overrides [Config.TTL] for this lock. Default: the locker's.
	TTL time.Duration
	// Fixed disables renewal: the lease is lost after TTL.
	Fixed bool
	// MaxHold ends the lease this long after its grant, even if the holder is alive. The store
	// keeps it for up to a TTL longer.
	MaxHold time.Duration
	// MinHold keeps the lock taken for at least this long after its grant: an earlier Unlock
	// leaves it to expire then, which waiters notice by their [Config.Poll]. So a job that is
	// scheduled on hosts whose clocks differ by less runs once. A lock that is lost, or whose
	// holder dies, becomes free as always. No read-write lock has it.
	MinHold time.Duration
	// Alive is called before each renewal, in its own goroutine. If it returns false, the
	// lease is lost at once; if it does not return, when its time is over.
	Alive func() bool
	// Heartbeat is the longest pause between two calls of [Lease.Beat]; after a longer one the
	// lease is lost. Default: no heartbeat is needed.
	Heartbeat time.Duration
	// Retry decides when a waiter sends its request again without a message from the store.
	Retry retry.Policy
	// Passes is how often Unlock may hand the lock to the next waiter in this process without
	// a request to the store, if it uses Passes and the same TTL. Each holder has its own
	// lease and a larger fencing token; [Lease.Owner] stays. It works with [Locker.Mutex] and
	// renewed leases, not on quorums and plain locks. At most [driver.MaxPasses].
	Passes int
	// PassFor is how long after the store's grant the lock is handed off. Default: 1 s.
	PassFor time.Duration
	// OnLost is called once if the lease is lost, in its own goroutine, with a *[LostError].
	OnLost func(error)
}

// defaultPassFor is the default of [Options.PassFor].
const defaultPassFor = time.Second

// validate returns an error if o is invalid for a kind of lock, on a wheel with that shortest TTL.
func (o *Options) validate(kind driver.Kind, minTTL time.Duration) error {
	switch {
	case o.Passes < 0 || o.Passes > driver.MaxPasses:
		return fmt.Errorf("lock: Passes %d is outside 0 … %d", o.Passes, driver.MaxPasses)
	case o.PassFor < 0:
		return fmt.Errorf("lock: PassFor %v is negative; accepted are positive durations, 0 for %v", o.PassFor, defaultPassFor)
	case o.Passes > 0 && !kinds[kind].grants:
		return fmt.Errorf("lock: Passes is for the mutex; a %v cannot be handed off", kind)
	case o.Passes > 0 && o.Fixed:
		return errors.New("lock: Passes needs a renewed lease; do not set Fixed")
	case o.MaxHold < 0:
		return fmt.Errorf("lock: MaxHold %v is negative; accepted are positive durations, 0 for no limit", o.MaxHold)
	case o.MinHold < 0 || o.MinHold > driver.MaxTTL:
		return fmt.Errorf("lock: MinHold %v is outside 0 … %v", o.MinHold, driver.MaxTTL)
	case o.MinHold > 0 && !kinds[kind].minHold:
		return errors.New("lock: MinHold is for mutexes, fair locks and permits: the holders of a read-write lock share one TTL")
	case o.MaxHold > 0 && o.MinHold > o.MaxHold:
		return fmt.Errorf("lock: MinHold %v is longer than MaxHold %v", o.MinHold, o.MaxHold)
	case o.MinHold > 0 && o.Passes > 0:
		return errors.New("lock: MinHold keeps the lock from the next holder, and Passes hands it on: set one of them")
	case o.Heartbeat < 0:
		return fmt.Errorf("lock: Heartbeat %v is negative; accepted are positive durations, 0 for none", o.Heartbeat)
	case o.TTL != 0:
		return inRange("TTL", o.TTL, minTTL, driver.MaxTTL)
	}
	return nil
}
