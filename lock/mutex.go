package lock

import (
	"cmp"
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
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

// acquire takes the lock, once more if ctx already carries its ownership.
func (m *Mutex) acquire(ctx context.Context, wait time.Duration) (*Lease, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	a := acquisition{request: request{locker: m.locker}, options: m.options, ctx: ctx}
	defer a.limitWait(wait)()
	if lease, err := m.again(&a, ownershipIn(ctx, m.locker, m.kind, m.name)); lease != nil || err != nil {
		return lease, err
	}
	return m.locker.acquire(&a)
}

// again takes the lock once more if own owns it. Otherwise it returns nil, and the acquisition
// has a hold to request.
func (m *Mutex) again(a *acquisition, own *ownership) (*Lease, error) {
	if own != nil {
		if lease, err := own.reacquire(*a); lease != nil || err != nil {
			return lease, err
		}
	}
	return nil, m.setHold(a)
}

// setHold creates the hold that the acquisition requests, which begins with it.
func (m *Mutex) setHold(a *acquisition) error {
	l := m.locker
	if l.config.Observer.Acquired != nil {
		a.begin = time.Now()
	}
	a.hold = l.newHold(m.kind, m.name, cmp.Or(m.options.TTL, l.config.TTL))
	a.hold.Queue.Reserve = int64(m.options.Passes)
	if a.wait && kinds[m.kind].places {
		a.hold.Queue.Keep = placeTTL
	}
	if m.complete == nil {
		return nil
	}
	return m.complete(a)
}

// ready returns an error if no request should be sent.
func (m *Mutex) ready(ctx context.Context) error {
	if err := m.options.validate(m.kind, m.locker.tick); err != nil {
		return err
	}
	return m.locker.ready(ctx, m.name)
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
