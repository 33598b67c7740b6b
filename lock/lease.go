package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Lease is one hold of a lock. Its methods are safe for concurrent use.
type Lease struct {
	own  *ownership
	done atomic.Bool
}

// Context returns a context that ends with cause [ErrLost] when the lease is lost, and
// also when the lock is unlocked for the last time. The context carries the ownership, so
// that the lock can be taken again with it. It has the values, but not the cancellation,
// of the context that the lock was acquired with.
func (l *Lease) Context() context.Context { return l.own.with(l.own.lease.Context()) }

// Lost is closed when the lease is lost, for example because the store no longer has it,
// or because it was not renewed in time; [Lease.Err] then has the cause. Lost stays open
// if the lease is unlocked first.
func (l *Lease) Lost() <-chan struct{} { return l.own.lease.Lost() }

// Err returns nil while the lease is held, and then why it ended: a *[LostError], or an
// error that matches [ErrReleased] after Unlock.
func (l *Lease) Err() error { return l.own.lease.Err() }

// Until returns the instant up to which the lease is valid if no renewal follows. A
// renewal extends it.
func (l *Lease) Until() time.Time { return l.own.lease.Until() }

// Valid reports whether the lease is valid now. It may end right afterwards. Where that
// matters, let the resource check [Lease.Token].
func (l *Lease) Valid() bool { return l.own.lease.Valid() }

// Beat reports to the watchdog that the holder is alive. See [Options.Heartbeat].
func (l *Lease) Beat() { l.own.lease.Beat() }

// Token returns the fencing token: a number larger than that of every earlier grant of
// this lock. Pass it to the resource with each write, and let the resource refuse a token
// smaller than the largest it has seen. The token is not a secret.
func (l *Lease) Token() int64 { return l.own.token }

// Name returns the lock's name.
func (l *Lease) Name() string { return l.own.hold.Name }

// Owner returns the owner as the store has it: "<client id>:<number>".
func (l *Lease) Owner() string { return l.own.hold.Owner }

// Unlock releases this hold; with the last hold, the lock becomes free. It returns within
// [Config.RequestTimeout], and sooner if ctx ends. If the store has not answered by then,
// the release is repeated in the background until the store confirms it. A ctx that has
// already ended, which is common in a deferred Unlock, does not limit it. Unlock also
// works after [Locker.Close], but then nothing is repeated in the background.
//
// A second Unlock of the same lease returns [ErrNotHeld]. An error that matches [ErrLost]
// means that the lease had already ended, so another holder may have been active. An
// error that matches [ErrUnavailable] means that the store did not confirm the release.
// The store then frees the lock after its TTL, or, if there are other holds, with the
// last of them.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.done.Swap(true) {
		return ErrNotHeld
	}
	return l.own.unlock(ctx)
}

// use calls f while the lease is held, and unlocks it afterwards; see [Mutex.Do].
func (l *Lease) use(ctx context.Context, f func(ctx context.Context) error) (err error) {
	defer func() { err = errors.Join(err, l.Unlock(ctx)) }()
	held, cancel := l.within(ctx)
	defer cancel()
	return f(held)
}

// within returns a context derived from ctx that carries the ownership and also ends with
// the lease.
func (l *Lease) within(ctx context.Context) (context.Context, context.CancelFunc) {
	held := l.own.lease.Context()
	ctx, cancel := context.WithCancelCause(l.own.with(ctx))
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
