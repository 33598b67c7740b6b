package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Lease is one hold of a lock. Its methods may be called at the same time.
type Lease struct {
	own  *ownership
	done atomic.Bool
}

// Context returns a context that ends with cause [ErrLost] when the lease is
// lost, and also when the lock is unlocked for the last time. It carries the
// ownership, so that the same lock can be taken again with it, and the values,
// but not the end, of the context that the lock was acquired with.
func (l *Lease) Context() context.Context { return l.own.with(l.own.lease.Context()) }

// Lost is closed when the lease is lost: the store said so, or could not be told
// in time that its holder lives. It stays open if the lease is unlocked first.
func (l *Lease) Lost() <-chan struct{} { return l.own.lease.Lost() }

// Err returns nil while the lease is held, and then why it ended: a *[LostError],
// or an error that says that it was unlocked.
func (l *Lease) Err() error { return l.own.lease.Err() }

// Until returns the instant up to which the lease may be relied on if nothing
// more is heard from the store. A renewal moves it on.
func (l *Lease) Until() time.Time { return l.own.lease.Until() }

// Valid reports whether the lease may be relied on at this instant. It may end in
// the next one; where that matters, have the resource check [Lease.Token].
func (l *Lease) Valid() bool { return l.own.lease.Valid() }

// Beat tells the watchdog that the holder is alive. See [Options.Heartbeat].
func (l *Lease) Beat() { l.own.lease.Beat() }

// Token returns the fencing token: a number larger than that of every earlier
// grant of this lock. Hand it to the resource with each write, and let the
// resource refuse a token smaller than the largest it has seen. It is no secret.
func (l *Lease) Token() int64 { return l.own.token }

// Name returns the lock's name.
func (l *Lease) Name() string { return l.own.hold.Name }

// Owner returns the owner that the store knows, "<client id>:<number>".
func (l *Lease) Owner() string { return l.own.hold.Owner }

// Unlock gives this hold back; with the last one, the lock is free. It returns within
// [Config.RequestTimeout], and sooner if ctx ends; if the store has not answered by
// then, it is asked on in the background until it confirms that the lock is free. A ctx
// that has ended already, which is common where Unlock is deferred, does not bound it.
// Unlock works after [Locker.Close] as well, but then nothing goes on in the
// background.
//
// A second Unlock of the same lease returns [ErrNotHeld]. An error that matches
// [ErrLost] says that the lease had ended before, so that another holder may have
// been at work; one that matches [ErrUnavailable], that the store could not be
// told and frees the lock after its TTL, or, where there are other holds, with the
// last of them.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.done.Swap(true) {
		return ErrNotHeld
	}
	return l.own.unlock(ctx)
}

// use calls f while the lease is held, and unlocks it afterwards, as [Mutex.Do] says.
func (l *Lease) use(ctx context.Context, f func(ctx context.Context) error) (err error) {
	defer func() { err = errors.Join(err, l.Unlock(ctx)) }()
	held, cancel := l.within(ctx)
	defer cancel()
	return f(held)
}

// within returns a context derived from ctx that carries the ownership and ends
// with the lease as well.
func (l *Lease) within(ctx context.Context) (context.Context, context.CancelFunc) {
	held := l.own.lease.Context()
	ctx, cancel := context.WithCancelCause(l.own.with(ctx))
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
