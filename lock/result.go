package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
)

// result is how an acquisition has ended: with a grant, or with an error.
type result struct {
	grant grant
	// handOff is nil if the lease is not handed off within the process.
	handOff *handOff
	// lease is not nil if another holder in this process handed it off.
	lease *Lease
	err   error
	// panicked: err is the *PanicError of the store, or of a function of the user, in the queue's
	// run. One that the store returns is an error like others.
	panicked bool
}

// orPanic returns the result, or continues a panic in the goroutine of the caller.
func (r result) orPanic() result {
	if !r.panicked {
		return r
	}
	p := r.err.(*PanicError) //nolint:errorlint // the run's own is never wrapped
	if p.Value == nil {
		runtime.Goexit()
	}
	panic(p.Value)
}

// inTime reports whether a lease of ttl, requested at sent, can still be renewed in time.
func (l *Locker) inTime(sent time.Time, ttl time.Duration) bool {
	return ttl >= l.minTTL && time.Now().Before(renewal.Until(sent, ttl).Add(-l.tick))
}

// conclude makes the lease of a granting result, and counts and reports the result.
func (l *Locker) conclude(a *acquisition, r result) (lease *Lease, err error) {
	if err = l.accept(a, r); err == nil {
		lease, err = l.newLease(a, r)
	}
	outcome, counted := observe.Failed, &l.outcomes.failed
	switch {
	case err == nil && r.lease != nil:
		outcome, counted = observe.HandedOff, &l.outcomes.handedOff
	case err == nil:
		outcome, counted = observe.Granted, &l.outcomes.granted
		if r.grant.byRelease {
			l.outcomes.byRelease.Add(1)
		}
	case errors.Is(err, ErrNotAcquired):
		outcome, counted = observe.Refused, &l.outcomes.refused
	}
	counted.Add(1)
	if o := l.config.Observer; o.Acquired != nil || o.Ended != nil {
		l.reportAcquired(a, outcome, lease, err)
	}
	return lease, err
}

// accept returns the error of a result. A grant that came too late is given back.
func (l *Locker) accept(a *acquisition, r result) error {
	if r.err != nil {
		return r.err
	}
	cause := ended(a.ctx, l.closed)
	if cause == nil {
		return nil
	}
	if r.lease != nil {
		l.returnLease(r.lease)
	} else {
		l.giveBack(a, r)
	}
	return fmt.Errorf("lock: %q was granted too late and is released: %w", a.hold.Name, cause)
}

// ended returns the cause of the first context that has ended, or nil.
func ended(contexts ...context.Context) error {
	for _, ctx := range contexts {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// giveBack releases a grant of which no lease was made, in the background.
func (l *Locker) giveBack(a *acquisition, r result) {
	l.endHandOff(r.handOff)
	_ = a.abandon() // after an error its TTL ends it
}

// newLease makes the lease of a grant, has the watchdog renew it, and announces the client.
func (l *Locker) newLease(a *acquisition, r result) (*Lease, error) {
	if r.lease != nil {
		return r.lease, nil
	}
	g := &r.grant
	hold, ttl := *a.hold, a.hold.TTL
	hold.Queue.Granted = g.byRelease
	if !g.byRelease && g.Lease > 0 {
		ttl = g.Lease
	}
	own, spec := newOwnership(a, hold, ttl, r, a.unknownUntil)
	spec.Granted, spec.First, spec.TTL = g.sent, cmp.Or(g.First, g.Lease), ttl
	var err error
	own.lease, err = l.watchdog.Watch(spec)
	switch {
	case err == nil:
		l.announcer.begin()
		return &Lease{holding: own}, nil
	case errors.Is(err, renewal.ErrClosed):
		err = ErrClosed
	case !errors.Is(err, ErrLost):
		err = fmt.Errorf("lock: the lease of %q cannot be renewed: %w", a.hold.Name, err)
	}
	l.giveBack(a, r)
	return nil, err
}

// newOwnership returns the ownership that an acquisition is granted, and the watchdog's
// description of its lease, which is not registered yet. h is the hold as requests take it, and
// ttl that of its lease.
func newOwnership(a *acquisition, h driver.Hold, ttl time.Duration, r result, unknownUntil time.Time) (*ownership, renewal.Spec) {
	o := &a.options
	own := &ownership{locker: a.locker, kind: h.Kind, token: r.grant.Token, terms: &noTerms}
	if !unknownUntil.IsZero() {
		own.unknown = new(unknownUntil)
	}
	own.count.Store(1)
	spec := renewal.Spec{
		Key:       a.hold.Name,
		Owner:     a.hold.Owner,
		Ref:       driver.RefOf(a.hold),
		TTL:       a.hold.TTL,
		Fixed:     o.Fixed,
		MaxHold:   o.MaxHold,
		Alive:     o.Alive,
		Heartbeat: o.Heartbeat,
		Context:   context.WithoutCancel(a.ctx),
		OnLost:    o.OnLost,
	}
	observed := own.locker.config.Observer.Ended != nil
	if observed || o.MinHold > 0 || r.handOff != nil || h.TTL != ttl || !h.Plain() {
		own.terms = &terms{hold: h, handOff: r.handOff}
		if observed {
			own.terms.since = time.Now()
		}
		if o.MinHold > 0 {
			own.terms.keepUntil = time.Now().Add(o.MinHold)
		}
	}
	if observed || r.handOff != nil {
		spec.OnLost = own.onLost(o.OnLost)
	}
	return own, spec
}

// maxToken is the largest fencing token that every client can read.
const maxToken = 1 << 53

// grantedByRelease returns the grant that another owner's release has made. It accepts
// the notice only if its values are within what the waiter offered, and only if it is in
// time: the grant has not expired, and the store has not refused the lock since.
//
// The grant's start is computed from the store's clock: the time between the latest
// refusal and the grant. That clock may be fast by 1 %. A grant that would still start in
// the future is not accepted. If the notice is not accepted, the head sends a request
// instead.
func (a *acquisition) grantedByRelease(n *driver.Notice) (g grant, ok bool) {
	offered := cmp.Or(a.hold.Queue.Provisional, a.hold.TTL)
	ttl := cmp.Or(n.TTL, offered)
	switch {
	case ttl > offered:
		return grant{}, false
	case n.Token < 1 || n.Reserved < 0 || n.Reserved > a.hold.Queue.Reserve || n.Token > maxToken-n.Reserved:
		return grant{}, false
	case a.enqueued.At.IsZero() || n.At.Before(a.enqueued.At):
		return grant{}, false
	}
	after := n.At.Sub(a.enqueued.At)
	sent := a.enqueued.sent.Add(after - after/100)
	if sent.After(time.Now()) || !a.locker.inTime(sent, ttl) {
		return grant{}, false
	}
	return grant{Answer: driver.Answer{Verdict: driver.Granted, Token: n.Token, Reserved: n.Reserved, Lease: ttl}, sent: sent, byRelease: true}, true
}
