package renewal

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// Spec says which lease is to be kept alive, and how.
type Spec struct {
	// Key names the lease at the store, Owner who holds it there. Both are the
	// renewer's to understand; Owner is never printed.
	Key, Owner string
	// Ref is for the renewer's own use.
	Ref any

	// TTL is what each renewal asks for. At least four ticks of the wheel.
	TTL time.Duration
	// Granted is the instant before the request was sent that the store granted,
	// with its monotonic reading.
	Granted time.Time
	// First is how long the grant lasts if that is not TTL: a store may want to
	// hear from a holder soon before it gives more. At least four ticks of the
	// wheel. Default: TTL.
	First time.Duration

	// Fixed leases are not renewed: they are lost (Expired) when their time is
	// over.
	Fixed bool
	// MaxHold ends the lease that long after Granted, whoever is alive. The store
	// has it for up to a TTL more, in which the holder can wind up. Default: no
	// limit.
	MaxHold time.Duration
	// Alive is asked before each renewal, in a goroutine of its own, whether the
	// holder still is. If it says false, or panics, the lease is lost at once; if
	// it does not return, when the lease's time is over. Default: not asked.
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

// validate says what is wrong with s, on a wheel with the given tick.
func (s *Spec) validate(tick time.Duration, now time.Time) error {
	switch least := max(minTicks*tick, minTTL); {
	case s.TTL < least || s.TTL > maxTTL:
		return fmt.Errorf("renewal: TTL %v of lease %q is outside %v … %v: four ticks of the wheel are needed to renew in time", s.TTL, s.Key, least, maxTTL)
	case s.First != 0 && (s.First < least || s.First > maxTTL):
		return fmt.Errorf("renewal: First %v of lease %q is outside %v … %v; 0 means the TTL", s.First, s.Key, least, maxTTL)
	case s.Granted.IsZero():
		return fmt.Errorf("renewal: lease %q has no Granted: give the instant before its request was sent", s.Key)
	case s.Granted.After(now):
		return fmt.Errorf("renewal: lease %q was granted in the future: give the instant before its request was sent", s.Key)
	case s.MaxHold < 0:
		return fmt.Errorf("renewal: MaxHold %v of lease %q is negative; 0 means no limit", s.MaxHold, s.Key)
	case s.Heartbeat < 0:
		return fmt.Errorf("renewal: Heartbeat %v of lease %q is negative; 0 means none", s.Heartbeat, s.Key)
	}
	return nil
}

// A Lease is kept alive by the [Watchdog] that made it, until [Lease.Stop] or its
// loss. Its methods may be called at the same time.
type Lease struct {
	// What a renewal touches comes first and fills two cache lines; a million
	// leases are in nobody's cache.

	dog *Watchdog
	key string
	// until is an instant. It only grows, unless the store chose a shorter TTL.
	// Atomic, as ended and era are.
	until atomic.Int64
	// ended is nil while the lease is held; afterwards it is the loss, or
	// released.
	ended atomic.Pointer[LostError]
	// era is that in which the store last confirmed the lease; see clock.
	era   atomic.Uint32
	phase phase
	fixed bool
	// due is when the lease is to be renewed.
	due instant
	// place is where the lease is linked; nil once it has ended.
	place      *list
	prev, next *Lease
	// rules is nil for a lease that has none. It is set once, under mu, and its
	// fields say for themselves how they are guarded.
	rules atomic.Pointer[rules]
	// span is the TTL that the store last gave, ttl what it is asked for.
	span, ttl time.Duration
	// lane is the one that the lease was last queued in.
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

// phase says what a lease waits for.
type phase uint8

const (
	waiting  phase = iota // for its due time: in the calendar; a fixed lease: parked
	called                // for its group's name, or for its holder to be vouched for
	queued                // for its turn in its group
	inFlight              // for an answer
)

// fault tells of a request that was not answered; the leases of a batch share it.
type fault struct{ err error }

// rules is what only some leases have.
type rules struct {
	// Set before the lease is watched, never changed.
	holdEnd   instant // never: no limit
	heartbeat time.Duration
	alive     func() bool
	onLost    func(error)

	// beat is when the last heartbeat came, in ns of the time awake: nobody gives
	// one while the machine sleeps.
	beat atomic.Int64

	// Guarded by mu, and not written once the lease has ended, so that tell may
	// read them without.
	unhook func() bool // takes Spec.Context's hook out
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
// before.
func (l *Lease) Until() time.Time {
	return l.dog.clock.time(instant(l.until.Load()))
}

// Valid reports whether the lease may be trusted now: it is held, its time is
// not over, and neither a suspend of the machine nor a step of its clocks has
// happened since the store last confirmed it. It looks at the clocks, so it is
// right even if the process has just woken up.
func (l *Lease) Valid() bool {
	if l.ended.Load() != nil {
		return false
	}
	// The clocks first: a jump that is heeded from here on began after the call.
	if l.dog.clock.jumped() {
		l.dog.kick()
		return false
	}
	return l.trusted() && l.dog.clock.now() < instant(l.until.Load())
}

// trusted reports whether the store has confirmed the lease since the last jump of
// the clocks.
func (l *Lease) trusted() bool { return l.era.Load() == l.dog.clock.era.Load() }

// Err returns nil while the lease is held, then the *[LostError] or an error that
// matches [ErrReleased].
func (l *Lease) Err() error {
	switch end := l.ended.Load(); end {
	case nil:
		return nil
	case released:
		return l.dog.released
	default:
		return end
	}
}

// Context returns a context that ends with the lease: with a *[LostError] as its
// cause when it is lost, with [ErrReleased] after [Lease.Stop]. It is derived
// from [Spec.Context]; if that one ends, so does this, with its cause.
func (l *Lease) Context() context.Context {
	w := l.dog
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
	w := l.dog
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := l.rules.Load(); r != nil && r.lost != nil {
		return r.lost
	}
	lost := make(chan struct{})
	switch l.ended.Load() {
	case nil:
		l.ruled().lost = lost
	case released:
	default:
		close(lost)
	}
	return lost
}

// ruled returns the lease's rules, which it makes where there are none. The
// caller holds mu.
func (l *Lease) ruled() *rules {
	r := l.rules.Load()
	if r == nil {
		r = &rules{holdEnd: never}
		l.rules.Store(r)
	}
	return r
}

// Beat is the heartbeat that [Spec.Heartbeat] demands. It does nothing for a
// lease without, or one that has ended.
func (l *Lease) Beat() {
	if r := l.rules.Load(); r != nil && r.heartbeat > 0 {
		r.beat.Store(int64(l.dog.clock.awake()))
	}
}

// Stop ends the lease: it is not renewed any more, and no longer lost. When Stop
// returns nil, no renewal of this lease is in flight or ever will be, so the
// caller can release it at the store. If ctx ends first, the error carries its
// cause; no further renewal will be sent then either.
//
// A second Stop, and one of a lost lease, waits for the same.
func (l *Lease) Stop(ctx context.Context) error {
	w := l.dog
	w.mu.Lock()
	ended := w.end(l, released)
	flight := l.flight()
	w.mu.Unlock()
	if ended {
		l.tell()
	}
	if flight == nil {
		return nil
	}
	select {
	case <-flight:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("renewal: lease %q is released, but a renewal of it has not returned: %w", l.key, context.Cause(ctx))
	}
}

// flight returns a channel that is closed when the request that the lease is in
// has returned; nil if it is in none. The caller holds mu.
func (l *Lease) flight() <-chan struct{} {
	if l.batch == nil {
		return nil
	}
	return l.batch.wait()
}

// ends returns when the lease is lost unless something happens before, and by
// what. The caller holds mu.
func (l *Lease) ends() (instant, Cause) {
	at, cause := instant(l.until.Load()), l.overdue()
	r := l.rules.Load()
	if r == nil {
		return at, cause
	}
	if r.heartbeat > 0 {
		if next := l.dog.clock.fromAwake(time.Duration(r.beat.Load())).add(r.heartbeat); next < at {
			at, cause = next, NoHeartbeat
		}
	}
	if r.holdEnd < at {
		at, cause = r.holdEnd, MaxHold
	}
	return at, cause
}

// overdue returns why the lease's time is over, if it is: neither the store nor the
// holder is blamed for what the machine has slept away. The caller holds mu.
func (l *Lease) overdue() Cause {
	switch l.phase {
	case called:
		if l.asksHolder() && l.trusted() {
			return NotAlive
		}
	case queued:
		if l.lane.deaf(l.due) {
			return Unreachable
		}
	case inFlight:
		if l.batch.era == l.dog.clock.era.Load() {
			return Unreachable
		}
	}
	if l.fault != nil {
		return Unreachable
	}
	return Expired
}

// asksHolder reports whether a function vouches for the holder.
func (l *Lease) asksHolder() bool {
	r := l.rules.Load()
	return r != nil && r.alive != nil
}

// why returns what lies behind a loss by cause. The caller holds mu.
func (l *Lease) why(cause Cause) error {
	switch {
	case cause == NotAlive:
		return errAliveHangs
	case cause != Unreachable:
		return nil
	case l.fault != nil:
		return l.fault.err
	}
	return l.lane.fault
}

var errAliveHangs = errors.New("Spec.Alive has not returned")

// tell lets the holder know that the lease has ended. It is called once, by
// whoever has ended the lease, without mu.
func (l *Lease) tell() {
	lost, err := l.ended.Load(), l.Err()
	if lost == released {
		lost = nil
	}
	if r := l.rules.Load(); r != nil {
		if r.unhook != nil {
			r.unhook()
		}
		if r.cancel != nil {
			r.cancel(err)
		}
		if lost != nil && r.lost != nil {
			close(r.lost) // whoever hears this finds the context ended
		}
		if lost != nil && r.onLost != nil {
			l.dog.tellLoss(r.onLost, lost)
		}
	}
	if lost != nil {
		l.dog.observeLost(l, lost)
	}
}
