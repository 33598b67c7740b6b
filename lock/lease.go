package lock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// Lease is one hold of a lock, or of several by [All]: lost when one of them is.
type Lease struct {
	holding holding
	done    atomic.Bool
}

// holding is an *[ownership] of one lock, or a *[together] of several.
type holding interface {
	// with returns a context derived from ctx that carries the ownership.
	with(ctx context.Context) context.Context
	state() state
	tokens() []int64
	// unlock ends one hold of each lock, each within its [Locker.within] of ctx. used is false
	// if the caller has not received the lease, or has discarded it: [Options.MinHold] does not
	// count then.
	unlock(ctx context.Context, used bool) error
}

// state is a [renewal.Lease], or that of several.
type state interface {
	// Context ends with the lease. It carries no ownership.
	Context() context.Context
	Lost() <-chan struct{}
	Err() error
	Until() time.Time
	Valid() bool
	Beat()
	// Key is the name.
	Key() string
	Owner() string
}

// own returns the ownership of a lease of one lock.
func (l *Lease) own() *ownership { return l.holding.(*ownership) }

// Context returns a context that ends with cause [ErrLost] when the lease is lost, and with
// [ErrReleased] after the last Unlock. It carries the ownership, and the values but not the
// cancellation of the first acquisition's context.
func (l *Lease) Context() context.Context { return l.holding.with(l.holding.state().Context()) }

// Lost is closed when the lease is lost, unless it is unlocked first.
func (l *Lease) Lost() <-chan struct{} { return l.holding.state().Lost() }

// Err returns nil while the lease is held, then a *[LostError] or [ErrReleased].
func (l *Lease) Err() error { return l.holding.state().Err() }

// Until returns when the lease ends unless renewed; Options may end it sooner.
func (l *Lease) Until() time.Time { return l.holding.state().Until() }

// Valid reports whether the lease is valid now. It may end right afterwards.
func (l *Lease) Valid() bool { return l.holding.state().Valid() }

// Beat is the heartbeat of [Options.Heartbeat].
func (l *Lease) Beat() { l.holding.state().Beat() }

// Token returns the fencing token, which is larger than that of every earlier grant of this
// lock. It is not a secret. It is 0 if the store counts none, as for plain locks on Redis by
// default, and for the locks of [All]: see Tokens.
func (l *Lease) Token() int64 {
	if own, one := l.holding.(*ownership); one {
		return own.token
	}
	return 0
}

// Tokens returns the token of each lock, in the order in which [All] got them.
func (l *Lease) Tokens() []int64 { return l.holding.tokens() }

// Name returns the lock's name; of several, joined by commas.
func (l *Lease) Name() string { return l.holding.state().Key() }

// Owner returns the owner in the store, "<client id>:<number>"; "" of several.
func (l *Lease) Owner() string { return l.holding.state().Owner() }

// Unlock releases this hold; with the last hold, the lock becomes free. It returns within
// [Config.RequestTimeout], and sooner if ctx ends, unless ctx has ended already; a request in
// flight is awaited. Without an answer the error matches [ErrUnavailable] and the release is
// repeated in the background, except after [Locker.Close] and with [Options.MinHold]; the
// store frees the lock after its TTL at the latest, or with the owner's last hold. [ErrLost]
// means that the lease had ended before, so another holder may have been active.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.unlock(unended(ctx), true)
}

// Discard is [Lease.Unlock] before the work has begun: [Options.MinHold] then keeps the lock only
// if another hold of the owner was used.
func (l *Lease) Discard(ctx context.Context) error {
	return l.unlock(unended(ctx), false)
}

// unlock is holding.unlock, once.
func (l *Lease) unlock(ctx context.Context, used bool) error {
	if l.done.Swap(true) {
		return ErrNotHeld
	}
	return l.holding.unlock(ctx, used)
}

// do calls f with the lock that acquire gets; see [Mutex.Do].
func do(ctx context.Context, acquire func(context.Context) (*Lease, error), f func(ctx context.Context) error) error {
	if f == nil {
		panic("lock: Do: the function is nil")
	}
	lease, err := acquire(ctx)
	if err != nil {
		return err
	}
	return use(ctx, lease, f)
}

// use calls f while l is held, and unlocks it afterwards; see [Mutex.Do].
func use(ctx context.Context, l *Lease, f func(ctx context.Context) error) (err error) {
	defer func() {
		err = errors.Join(err, unreported(l.Unlock(context.WithoutCancel(ctx)), err))
	}()
	held, cancel := l.Within(ctx)
	defer cancel()
	return f(held)
}

// unreported returns the error of an Unlock without each loss that a function has returned, as
// the cause of its context.
func unreported(unlocked, returned error) error {
	if lost, one := unlocked.(*LostError); one && errors.Is(returned, lost) { //nolint:errorlint // one in another error is not a loss alone
		return nil
	}
	joined, several := unlocked.(interface{ Unwrap() []error })
	if !several {
		return unlocked
	}
	all := joined.Unwrap()
	rest := slices.DeleteFunc(slices.Clone(all), func(err error) bool { return unreported(err, returned) == nil })
	if len(rest) == len(all) {
		return unlocked
	}
	return errors.Join(rest...)
}

// Within returns a context derived from ctx that also carries the ownership and ends when the
// lease does. Call the function when the work is done.
func (l *Lease) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	held := l.holding.state().Context()
	ctx, cancel := context.WithCancelCause(l.holding.with(ctx))
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	if held.Err() != nil {
		cancel(context.Cause(held)) // before it returns
	}
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
