package renewal

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// Spec specifies a lease to keep alive, and how.
type Spec struct {
	// Key names the lease at the store, Owner its holder there. Only the renewer
	// interprets them; Owner is never printed.
	Key, Owner string
	// Ref is for the renewer's own use.
	Ref any

	// TTL is the time that each renewal requests. At least four ticks of the wheel and
	// 10 ms, at most ten years.
	TTL time.Duration
	// Granted is an instant before the request that the store granted was sent, with its
	// monotonic reading.
	Granted time.Time
	// First is how long the grant lasts if that is not TTL: a store may expect an early
	// renewal before it gives more. The limits are those of TTL. Default: TTL.
	First time.Duration

	// Fixed leases are not renewed: they are lost (Expired) when their time is
	// over.
	Fixed bool
	// MaxHold ends the lease that long after Granted, even if the holder is alive. The
	// store keeps it for up to a TTL more, in which the holder can wind up. Default: no
	// limit.
	MaxHold time.Duration
	// Alive is called before each renewal, in a goroutine of its own, and returns whether
	// the holder is alive. If it returns false, or panics, the lease is lost at once. If
	// it does not return, the lease is lost when its time is over. Default: not called.
	Alive func() bool
	// Heartbeat is how often, at least, the holder has to call [Lease.Beat].
	// Default: never.
	Heartbeat time.Duration
	// Context ends the lease when it ends, and is the parent of
	// [Lease.Context]. Default: context.Background().
	Context context.Context
	// OnLost is called once when the lease is lost, in a goroutine of its own,
	// with a *[LostError]. A panic in it is logged.
	OnLost func(error)
}

// validate returns an error for an invalid field of s, on a wheel with the given tick.
func (s *Spec) validate(tick time.Duration, now time.Time) error {
	switch least := max(minTicks*tick, minTTL); {
	case s.TTL < least || s.TTL > maxTTL:
		return fmt.Errorf("renewal: TTL %v of lease %q is outside %v … %v: four ticks of the wheel are needed to renew in time", s.TTL, s.Key, least, maxTTL)
	case s.First != 0 && (s.First < least || s.First > maxTTL):
		return fmt.Errorf("renewal: First %v of lease %q is outside %v … %v; 0 means the TTL", s.First, s.Key, least, maxTTL)
	case s.Granted.IsZero():
		return fmt.Errorf("renewal: lease %q has no Granted: give the instant before its request was sent", s.Key)
	case monotonic(now) && !monotonic(s.Granted):
		return fmt.Errorf("renewal: Granted of lease %q has no monotonic reading: give the instant as time.Now returned it", s.Key)
	case s.Granted.After(now):
		return fmt.Errorf("renewal: lease %q was granted in the future: give the instant before its request was sent", s.Key)
	case s.MaxHold < 0:
		return fmt.Errorf("renewal: MaxHold %v of lease %q is negative; 0 means no limit", s.MaxHold, s.Key)
	case s.Heartbeat < 0:
		return fmt.Errorf("renewal: Heartbeat %v of lease %q is negative; 0 means none", s.Heartbeat, s.Key)
	}
	return nil
}

// A Lease is kept alive by the [Watchdog] that made it, until [Lease.Stop] or its loss.
// Its methods are safe for concurrent use.
type Lease struct {
	// The fields that a renewal touches come first and fill two cache lines: a million
	// leases do not fit into a cache.

	watchdog *Watchdog
	key      string
	// until is an instant. It only grows, unless the store chose a shorter TTL or a request
	// is for less than what is left. Atomic, as are ended and generation.
	until atomic.Int64
	// ended is nil while the lease is held. Afterwards it is the loss, or released.
	ended atomic.Pointer[LostError]
	// generation is the clock generation in which the store last confirmed the lease; see
	// clock.
	generation atomic.Uint32
	phase      phase
	fixed      bool
	// due is when the lease is to be renewed.
	due instant
	// place is the list that the lease is in; nil once it has ended.
	place      *list
	prev, next *Lease
	// rules is nil for a lease that has none. It is set once, under mu; its fields
	// document how they are guarded.
	rules atomic.Pointer[rules]
	// span is the TTL that the store last gave, at first at most ttl, which renewals request.
	span, ttl time.Duration
	// lane is the lane that the lease was last queued in.
	lane *lane
	// batch is set while the lease is in one.
	batch *batch
	// fault is the last unanswered renewal since the last success.
	fault *fault

	owner  string
	ref    any
	parent context.Context
	// deadline is armed at or before the instant at which the lease may be lost.
	deadline wheel.Timer
}

// phase is the step of its renewal that a lease waits for.
type phase uint8

const (
	waiting   phase = iota // for its due time: in the calendar; a fixed lease: parked
	collected              // for its group's name, or for Spec.Alive
	queued                 // for a request of its group
	inFlight               // for the reply
)

// fault is a request that was not answered; the leases of a batch share it.
type fault struct {
	err error
	at  instant // when it failed
	// size is how many leases it had: any of them may be at fault.
	size int
}

// rules holds the fields that only some leases have.
type rules struct {
	// Set before the lease is watched, never changed.
	holdEnd   instant // never: no limit
	heartbeat time.Duration
	alive     func() bool
	onLost    func(error)

	// beat is when the last heartbeat came, in ns of the time awake: a suspended machine
	// gives none.
	beat atomic.Int64

	// asked is when alive was called; never while it does not run. Guarded by mu.
	asked instant

	// Guarded by mu, and not written once the lease has ended, so that notify may read
	// them without mu.
	unhook func() bool // removes Spec.Context's hook
	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   chan struct{}
}

// Key returns [Spec.Key].
func (l *Lease) Key() string { return l.key }

// Owner returns [Spec.Owner].
func (l *Lease) Owner() string { return l.owner }

// TTL returns [Spec.TTL].
func (l *Lease) TTL() time.Duration { return l.ttl }

// Ref returns [Spec.Ref].
func (l *Lease) Ref() any { return l.ref }

// Until returns the instant at which the lease is lost unless it is renewed
// before. A rule of its holder, such as [Spec.MaxHold], may end it earlier.
func (l *Lease) Until() time.Time {
	return l.watchdog.clock.time(instant(l.until.Load()))
}

// Valid reports whether the lease may be trusted now: it is held, neither its time nor what
// its holder's rules allow is over, and the store has confirmed it since the last suspend of
// the machine or step of its clocks. Of a fixed lease, which is never renewed, only the time is corrected then. Valid
// reads the clocks, so it is right even if the process has just woken up.
func (l *Lease) Valid() bool {
	if l.ended.Load() != nil {
		return false
	}
	// The clocks first: a jump that is handled from here on began after the call.
	if l.watchdog.clock.jumped() {
		l.watchdog.kick()
		return false
	}
	trusted := l.trusted()
	at, _ := l.ends()
	return trusted && l.watchdog.clock.now() < at
}

// trusted reports whether the store has confirmed the lease since the last jump of
// the clocks.
func (l *Lease) trusted() bool { return l.generation.Load() == l.watchdog.clock.generation.Load() }

// Err returns nil while the lease is held, then its *[LostError] or an error that matches
// [ErrReleased].
func (l *Lease) Err() error {
	switch end := l.ended.Load(); end {
	case nil:
		return nil
	case released:
		return l.watchdog.released
	default:
		return end
	}
}

// Context returns a context that ends with the lease. Its cause is a *[LostError] when
// the lease is lost, and [ErrReleased] after [Lease.Stop]. It is derived from
// [Spec.Context]; if that one ends, so does this, with its cause.
func (l *Lease) Context() context.Context {
	w := l.watchdog
	w.mu.Lock()
	if r := l.rules.Load(); r != nil && r.ctx != nil {
		defer w.mu.Unlock()
		return r.ctx
	}
	w.mu.Unlock()

	parent := l.parent // may be a user's type, so not under mu
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancelCause(parent)

	w.mu.Lock()
	err := l.Err()
	if err == nil {
		r := l.ruled()
		if r.ctx == nil {
			r.ctx, r.cancel = ctx, cancel
			cancel = nil
		}
		ctx = r.ctx
	}
	w.mu.Unlock()
	if cancel != nil {
		cancel(err)
	}
	return ctx
}

// Lost returns a channel that is closed when the lease is lost, and only then.
func (l *Lease) Lost() <-chan struct{} {
	w := l.watchdog
	w.mu.Lock()
	r, end := l.rules.Load(), l.ended.Load()
	if r != nil && r.lost != nil {
		defer w.mu.Unlock()
		return r.lost
	}
	lost := make(chan struct{})
	if end == nil {
		l.ruled().lost = lost
	}
	w.mu.Unlock()
	if end == nil || end == released {
		return lost
	}
	if r != nil && r.cancel != nil {
		r.cancel(end) // before the lease's signal does; not under mu, as its parent may be a user's type
	}
	close(lost)
	return lost
}

// ruled returns the lease's rules, and makes them if there are none. The caller holds mu.
func (l *Lease) ruled() *rules {
	r := l.rules.Load()
	if r == nil {
		r = &rules{holdEnd: never, asked: never}
		l.rules.Store(r)
	}
	return r
}

// Beat is the heartbeat that [Spec.Heartbeat] requires. It does nothing for a lease
// without one, or one that has ended.
func (l *Lease) Beat() {
	if r := l.rules.Load(); r != nil {
		r.beat.Store(int64(l.watchdog.clock.awake()))
	}
}

// Lose ends the lease as lost, unless it has ended: for a caller with an answer of the store that no
// renewal has had. It panics for a cause that does not exist.
func (l *Lease) Lose(cause Cause, err error) {
	if cause == 0 || cause >= causes {
		panic(fmt.Sprintf("renewal: Lose: there is no %v", cause))
	}
	w := l.watchdog
	w.mu.Lock()
	lost := w.lose(l, cause, err)
	w.mu.Unlock()
	if lost {
		l.signal()
	}
}

// Stop ends the lease: it is neither renewed nor lost any more. When Stop returns nil, no
// renewal of this lease is in flight or ever will be, so the caller can release it at the
// store. If ctx ends first, the error wraps its cause; no further renewal will be sent
// then either.
//
// A second Stop, and a Stop of a lost lease, also waits for renewals in flight.
func (l *Lease) Stop(ctx context.Context) error {
	w := l.watchdog
	w.mu.Lock()
	ended := w.end(l, released)
	flight := l.flight()
	w.mu.Unlock()
	if ended {
		l.signal()
	}
	if flight != nil && !await(ctx, flight) {
		return fmt.Errorf("renewal: lease %q is released, but a renewal of it has not returned: %w", l.key, context.Cause(ctx))
	}
	return nil
}

// flight returns a channel that is closed when the lease's request has returned; nil if
// it is in none. The caller holds mu.
func (l *Lease) flight() <-chan struct{} {
	if l.batch == nil {
		return nil
	}
	return l.batch.wait()
}

// ends returns when the lease will be lost unless it is renewed or its holder beats. cause is
// that of the holder's rule which ends it then, 0 if its time is over; see overdue.
func (l *Lease) ends() (at instant, cause Cause) {
	at = instant(l.until.Load())
	r := l.rules.Load()
	if r == nil {
		return at, 0
	}
	if r.heartbeat > 0 {
		if next := l.watchdog.clock.fromAwake(time.Duration(r.beat.Load())).add(r.heartbeat); next < at {
			at, cause = next, NoHeartbeat
		}
	}
	if r.holdEnd < at {
		at, cause = r.holdEnd, MaxHold
	}
	return at, cause
}

// overdue returns the cause of the loss if the lease's time is over now. The store is to
// blame only for requests that failed while the process ran, up to the end of the lease, and
// the holder only for a liveness function that had time to return: time lost to a standstill or
// a suspend is blamed neither on the store nor on the holder. The caller holds mu.
func (l *Lease) overdue() Cause {
	switch {
	case l.aliveHangs():
		return NotAlive
	case l.failure() != nil:
		return Unreachable
	}
	return Expired
}

// failure returns the failed request that explains why the lease has not been renewed; nil
// if there is none. The caller holds mu.
func (l *Lease) failure() *fault {
	inLane := l.phase == queued || l.phase == inFlight
	if f := l.fault; f != nil {
		last := f.at
		if inLane { // it waits for others, which are not answered either
			last = max(last, l.lane.failedAt)
		}
		// A process that runs sends a request again sooner than a third of the TTL later.
		if last.add(interval(l.span)) >= instant(l.until.Load()) {
			return f
		}
	}
	switch {
	case l.phase == inFlight && l.batch.timedOut != nil:
		return l.batch.timedOut
	case inLane:
		return l.lane.failedSince(l.due)
	}
	return nil
}

// checksAlive reports whether the lease has a liveness function.
func (l *Lease) checksAlive() bool {
	r := l.rules.Load()
	return r != nil && r.alive != nil
}

// aliveHangs reports whether the lease's liveness function has run for so long that the lease has
// not been renewed because of it. The caller holds mu.
func (l *Lease) aliveHangs() bool {
	r := l.rules.Load()
	return r != nil && l.trusted() && r.asked.add(interval(l.span)) <= instant(l.until.Load())
}

// why returns the error behind a loss by cause. The caller holds mu.
func (l *Lease) why(cause Cause) error {
	switch cause {
	case NotAlive:
		return errAliveHangs
	case Unreachable:
		return l.failure().err
	}
	return nil
}

var errAliveHangs = errors.New("Spec.Alive has not returned")

// notify is [Lease.signal] for the goroutines that the leases of others depend on, the
// wheel's worker first of all. A context that can end may be of a user's type, whose methods
// then run in a goroutine of their own.
func (l *Lease) notify() {
	if r := l.rules.Load(); r != nil && r.unhook != nil {
		go l.signal()
		return
	}
	l.signal()
}

// signal reports the end of the lease to its holder. The goroutine that has ended the
// lease calls it once, without mu. The functions of users run in goroutines of their own.
func (l *Lease) signal() {
	lost, err := l.ended.Load(), l.Err()
	if lost == released {
		lost = nil
	} else {
		defer l.watchdog.returned()
	}
	if r := l.rules.Load(); r != nil {
		if r.unhook != nil {
			r.unhook()
		}
		if r.cancel != nil {
			r.cancel(err)
		}
		if lost != nil && r.lost != nil {
			close(r.lost) // after the context, so that a receiver finds the context ended
		}
		if lost != nil && r.onLost != nil {
			l.watchdog.call("Spec.OnLost", func() { r.onLost(lost) })
		}
	}
	if lost != nil && l.watchdog.observer.Lost != nil {
		l.watchdog.call("Observer.Lost", func() { l.watchdog.observer.Lost(l, lost) })
	}
}
