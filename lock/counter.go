package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxCount is the largest count of a [Semaphore], of [Permits] and of a [Latch],
// and of permits in one request: what other clients of the format can read.
const MaxCount = math.MaxInt32

// Counter is a [Store] that keeps the counts behind semaphores and latches. Like
// those of Store, its method tries everything once.
//
// What waits, and what a lease keeps, is a [Hold] like any other; Counter has what
// is not: to set a count, to change it, and to read it.
type Counter interface {
	// Count carries a request out. One that changes the count is carried out once,
	// however often it is sent within c.Keep.
	Count(ctx context.Context, c *Count) (Counted, error)
}

// CountOp is what is asked of a [Counter].
type CountOp uint8

const (
	// CountRead changes nothing.
	CountRead CountOp = iota
	// CountCreate sets the count to N, unless the name is in use.
	CountCreate
	// CountAdd adds N, which may be negative. With [KindLatch] it counts down a
	// latch that is above zero, and a latch that reaches zero is gone.
	CountAdd
	// CountDrain takes all permits that are available.
	CountDrain
	// CountDelete removes the count.
	CountDelete
	// CountSet sets the count of [KindPermit] to N less the permits in use.
	CountSet
)

// Count is one request to a [Counter]. A store reads it and never changes it.
type Count struct {
	// Kind is the kind of lock that counts: KindSemaphore, KindPermit or KindLatch.
	Kind Kind
	// Name is the lock's name; it has passed [ValidateName].
	Name string
	Op   CountOp
	N    int64
	// TTL is, with CountCreate, how long the count lasts. Zero: it has no end.
	TTL time.Duration
	// Request identifies the request among all clients, in every attempt.
	Request string
	// Keep is how long the store remembers what it has replied to the request.
	Keep time.Duration
}

// Counted is the reply of a [Counter].
type Counted struct {
	// Done says that the request has changed something. An addition does not where
	// the count would leave the range of -[MaxCount] to [MaxCount].
	Done bool
	// Count is the count that the request has left, or with CountDrain how many
	// permits it has taken. Where there is no count it is zero.
	Count int64
	// Foreign says that something other than a count has the name.
	Foreign bool
}

// CountError says why a number of permits, or a count, is refused, and which are
// accepted.
type CountError struct {
	Count    int64
	Min, Max int64
}

func (e *CountError) Error() string {
	return fmt.Sprintf("lock: count %d is out of range: accepted are %d to %d", e.Count, e.Min, e.Max)
}

// validateLife returns an error if a count cannot last for so long.
func validateLife(ttl time.Duration) error {
	if ttl < time.Millisecond || ttl > MaxTTL {
		return fmt.Errorf("lock: a life of %v is out of range: accepted are 1ms to %v", ttl, MaxTTL)
	}
	return nil
}

func validateCount(n, least int64) error {
	if n < least || n > MaxCount {
		return &CountError{Count: n, Min: least, Max: MaxCount}
	}
	return nil
}

// ErrOverflow is returned where a count would leave the range of -[MaxCount] to
// [MaxCount]. It has not changed.
var ErrOverflow = errors.New("lock: the count would be out of range")

// remembered is how long a request that nobody owns may be sent again.
func (l *Locker) resendWindow() time.Duration {
	const most = MaxTTL / 8 // so that sums do not overflow
	return min(max(l.config.RetryFor, 0), most) + 3*min(l.config.RequestTimeout, most)
}

// count asks the store, again while that is worth it.
func (l *Locker) count(ctx context.Context, kind Kind, name string, op CountOp, n int64) (Counted, error) {
	return l.countFrom(ctx, Count{Kind: kind, Name: name, Op: op, N: n})
}

// countFrom asks the store for c, to which it adds what tells the request from others.
func (l *Locker) countFrom(ctx context.Context, c Count) (counted Counted, err error) {
	kind, name, op := c.Kind, c.Name, c.Op
	if err := l.ready(ctx, name); err != nil {
		return Counted{}, err
	}
	counter, ok := l.store.(Counter)
	if !ok {
		return Counted{}, fmt.Errorf("%w: %v", ErrUnsupported, kind)
	}
	c.Keep = 2 * l.resendWindow()
	if op != CountRead {
		c.Request = l.newHold(kind, name, c.Keep).Owner
	}
	err = l.withRetry(ctx, l.countFor(op), transient, func() (err error) {
		bounded, cancel := l.bound(ctx, c.Keep)
		defer cancel()
		counted, err = counter.Count(bounded, &c)
		return err
	})
	switch {
	case err != nil:
		return Counted{}, err
	case counted.Foreign:
		return Counted{}, fmt.Errorf("%w: %q", ErrForeign, name)
	}
	return counted, nil
}

// countFor is how long a request is sent again: the methods that begin with Try answer
// within [Config.RequestTimeout].
func (l *Locker) countFor(op CountOp) time.Duration {
	if op == CountCreate {
		return min(l.config.RequestTimeout, l.config.RetryFor)
	}
	return l.config.RetryFor
}

// take gets a hold granted of which no lease is made.
func (l *Locker) acquireNoLease(ctx context.Context, h *Hold, wait time.Duration) error {
	if err := l.ready(ctx, h.Name); err != nil {
		return err
	}
	a := acquisition{hold: h, ctx: ctx, waitCtx: ctx, wait: wait > 0}
	if wait > 0 && wait < forever {
		waitCtx, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
		defer cancel()
		a.waitCtx = waitCtx
	}
	if !l.enter() {
		return ErrClosed
	}
	defer l.active.Done()
	_, err := l.acquireHold(&a)
	if err == nil && a.unknownUntil.IsZero() {
		l.confirmed.add(h, time.Now().Add(l.config.RequestTimeout))
	}
	return err
}

// ready returns an error if there is a reason not to ask the store at all.
func (l *Locker) ready(ctx context.Context, name string) error {
	if err := ValidateName(name); err != nil {
		return err
	}
	if err := context.Cause(l.closed); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("lock: %q was not asked for: %w", name, err)
	}
	return nil
}
