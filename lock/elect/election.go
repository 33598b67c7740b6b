package elect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/internal/reentry"
)

// Errors of an election.
var (
	// ErrNoLeader is returned by [Election.Leader] while there is no leader.
	ErrNoLeader = errors.New("elect: there is no leader")
	// ErrResign is returned by a leader's function that ends its term and stands again.
	ErrResign = errors.New("elect: resigned")
)

// Election is one candidate's handle on an election. It is cheap, and its methods are
// safe for concurrent use.
type Election struct {
	locker   *lock.Locker
	mutex    *lock.Mutex
	options  lock.Options
	lead     lead
	failStop *failStop // nil: a lost leadership leaves the process alone
}

// New returns a handle on the election called name. It is decided by the mutex of that
// name, which candidates hold with options o. [lock.Options.TTL] is how long a dead leader
// is not replaced. [lock.Options.Alive] ends the term of one that hangs. [Election.Run]
// refuses [lock.Options.Passes], [lock.Options.MinHold] and [lock.Options.Heartbeat].
func New(l *lock.Locker, name string, o lock.Options) *Election {
	return &Election{locker: l, mutex: l.Mutex(name).With(o), options: o}
}

// FailStop returns a handle on the same election whose [Election.Run] ends the process if the
// leadership is lost and the leader's function has not returned within grace after that. It is
// for work that no term guards: a function that hangs does not go on beside the next leader for
// longer. The end of Run's context is no loss. [lock.Locker.Close] is one: let Run return before.
//
// The process prints the reason to standard error and exits with code 76; deferred functions do
// not run. A process that is stopped, or suspended with its machine, as the lease ends has the
// grace from when it continues. A grace of 0 ends it once the loss is noticed; a negative one panics.
func (e *Election) FailStop(grace time.Duration) *Election {
	if grace < 0 {
		panic("elect: FailStop: the grace is negative")
	}
	return &Election{locker: e.locker, mutex: e.mutex, options: e.options, failStop: &failStop{grace, exit}}
}

// Run stands for election until ctx ends. Each time this candidate is elected, Run calls
// lead and waits until it returns; the term then ends, and another candidate may be
// elected. The context of lead ends with ctx, with cause [lock.ErrLost] if the leadership
// is lost, or when the locker is closed. The term's number is the lock's fencing token: it
// grows with every leadership. It is 0 if the store counts no tokens.
//
// If lead returns nil, or an error other than [ErrResign], Run returns it: this candidate
// has resigned. After [ErrResign], Run stands again a second later. Run also stands again
// after a loss, whatever lead returned, since another candidate may lead then.
//
// When ctx ends, Run waits for lead, releases the leadership, for which it has
// [lock.Config.RequestTimeout], and returns ctx's cause, joined with lead's error unless
// that only repeats an end of its context. If lead panics, the leadership is released
// first. A candidate whose ctx owns the mutex waits as others do. An outage of the store is
// waited for; a [lock.Options.Retry] that stops begins again. Errors that no waiting would mend
// end Run, such as a *[lock.NameError], [lock.ErrClosed], or the server's refusal for lack of
// rights or memory.
//
// Stopping is up to lead: a function that does not return when its context ends keeps this
// candidate from standing again, and may be at work beside the next leader. Let the
// resources that it changes refuse a term smaller than the largest that they have seen, or
// let [Election.FailStop] end the process.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term int64) error) error {
	if lead == nil {
		panic("elect: Run: the function is nil")
	}
	if e.options.Passes > 0 || e.options.MinHold > 0 {
		return errors.New("elect: Options.Passes and Options.MinHold do not suit an election: they delay the next leader")
	}
	if e.options.Heartbeat > 0 {
		return errors.New("elect: Options.Heartbeat does not suit an election: a leader has no Lease to call Beat of; use Options.Alive")
	}
	for {
		lease, err := e.mutex.Lock(e.withoutMutex(ctx))
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrTooManyWaiters) || errors.Is(err, lock.ErrRetriesExhausted):
			backoff.Sleep(ctx, time.Second)
			continue
		default:
			return fmt.Errorf("elect: cannot stand for %q: %w", e.mutex.Name(), err)
		}
		again, err := e.serve(ctx, lease, lead)
		switch {
		case ctx.Err() != nil && err != nil:
			return errors.Join(context.Cause(ctx), err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !again:
			return err
		case errors.Is(err, ErrResign):
			backoff.Sleep(ctx, time.Second)
		}
	}
}

// IsLeader reports whether this candidate leads now: [Election.Run] of this handle has a
// function at work, and a lease that can be trusted. It sends no request. The leadership may
// end right afterwards; [Election.Await] has a context that ends with it.
func (e *Election) IsLeader() bool {
	r := e.lead.current.Load()
	return r != nil && r.ctx.Err() == nil && r.lease.Valid()
}

// Await waits until this candidate leads, by an [Election.Run] of this handle in another
// goroutine. It returns the term, and a context that ends with the leadership, with cause
// [lock.ErrLost], or [lock.ErrReleased] once the leader's function has returned, before the
// lock is released. If ctx ends first, Await returns its cause. It waits as well while no Run is
// active: let ctx end with Run.
//
// A loop of Await follows the leadership and never delays the election: a slow one misses
// terms that have ended meanwhile.
func (e *Election) Await(ctx context.Context) (leads context.Context, term int64, err error) {
	for {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		r, begins := e.lead.nowOrNext()
		if r != nil {
			return r.ctx, r.lease.Token(), nil
		}
		select {
		case <-begins:
		case <-ctx.Done():
		}
	}
}

// serve leads for one term. again reports whether to stand for another. The error is nil if
// it only repeats why the term's context ended.
func (e *Election) serve(ctx context.Context, lease *lock.Lease, lead func(ctx context.Context, term int64) error) (again bool, err error) {
	defer func() {
		unlocked := lease.Unlock(context.WithoutCancel(ctx)) // which may end meanwhile; the locker repeats a release that fails
		again = errors.Is(unlocked, lock.ErrLost) || errors.Is(err, ErrResign)
	}()
	term, end := lease.Within(ctx)
	defer end()
	defer e.lead.begin(e.withoutMutex(lease.Context()), lease)()
	defer e.failStop.watch(e.mutex.Name(), lease)()
	err = lead(e.withoutMutex(term), lease.Token())
	repeats := func(end error) bool { return errors.Is(end, err) }
	if ctx.Err() != nil && slices.ContainsFunc([]error{ErrResign, term.Err(), context.Cause(term), ctx.Err(), context.Cause(ctx)}, repeats) {
		err = nil
	}
	return false, err
}

// withoutMutex returns ctx without an ownership of the election's mutex, with which a candidate would
// lead at once, beside the owner and in its term.
func (e *Election) withoutMutex(ctx context.Context) context.Context {
	return context.WithValue(ctx, reentry.Key{Locker: e.locker, Kind: driver.KindMutex, Name: e.mutex.Name()}, nil)
}

// Leader returns who leads now, as the store knows it, or an error that matches
// [ErrNoLeader]. Its client has host and process once it has announced itself, moments
// after its first grant. The leader may have lost its connection, and its term may end at
// any time. A candidate recognizes itself by [lock.Locker.ClientID]. On a store that cannot
// inspect its locks, such as a quorum, the error matches [lock.ErrUnsupported].
func (e *Election) Leader(ctx context.Context) (driver.Holder, error) {
	info, err := e.locker.Inspect(ctx, e.mutex.Name(), driver.KindMutex)
	switch {
	case err != nil:
		return driver.Holder{}, fmt.Errorf("elect: %w", err)
	case info.Foreign != "":
		return driver.Holder{}, fmt.Errorf("elect: %q is a %s: %w", info.Name, info.Foreign, lock.ErrForeign)
	case info.Held() && info.Kind != driver.KindMutex && info.Kind != driver.KindFair:
		return driver.Holder{}, fmt.Errorf("elect: %q is a %v lock: %w", info.Name, info.Kind, lock.ErrForeign)
	case len(info.Holders) == 0:
		return driver.Holder{}, fmt.Errorf("%w of %q", ErrNoLeader, info.Name)
	}
	return info.Holders[0], nil
}
