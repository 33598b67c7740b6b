package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// grant is a store's yes, together with the instant before it was asked.
type grant struct {
	Answer
	asked time.Time
	// doubtful: an earlier attempt of the same acquisition went unanswered and
	// may yet arrive at the store, even after the release.
	doubtful bool
}

// acquire gets h granted and puts the lease under the watchdog.
func (l *Locker) acquire(ctx context.Context, h *Hold, o Options, wait bool) (*Lease, error) {
	g, err := l.obtain(ctx, h, wait)
	if err != nil {
		return nil, err
	}
	lease, err := l.watch(ctx, h, o, g)
	if err != nil {
		l.orphans.take(h, false)
		return nil, err
	}
	l.announcer.begin()
	return lease, nil
}

// obtain asks the store for h, and again whenever that is worth it while wait
// allows. Whatever ends it without a grant, the store is left without a trace of
// h: at once where the store has said so, else by the orphans' sweep.
func (l *Locker) obtain(ctx context.Context, h *Hold, wait bool) (grant, error) {
	var g grant
	var err error
	if !wait || !l.waitedFor(h) {
		g, err = l.ask(ctx, h)
		if err == nil && g.Verdict == Refused && !wait {
			return grant{}, refusal(h, g.Answer, nil)
		}
	}
	if err == nil && g.Verdict == Refused {
		g, err = l.wait(ctx, h, g.Answer)
	}
	if err != nil {
		return grant{}, err
	}
	if cause := ended(ctx, l.closed); cause != nil {
		l.orphans.take(h, false)
		return grant{}, fmt.Errorf("lock: %q was granted too late and is given back: %w", h.Name, cause)
	}
	return g, nil
}

// ask sends the acquisition until the store has answered it, or has not for
// [Config.RetryFor]. Sending it again is safe: a store grants an owner what it
// has. Where an error leaves open what the store has done, the orphans' sweep sees
// to it.
func (l *Locker) ask(ctx context.Context, h *Hold) (grant, error) {
	var failing time.Time
	doubtful := false
	for try := 0; ; try++ {
		g, err := l.send(ctx, h)
		if err == nil {
			g.doubtful = doubtful
			return g, nil
		}
		doubtful = doubtful || !errors.Is(err, ErrNotDone)
		if failing.IsZero() {
			failing = g.asked
		}
		pause := backoff(try)
		over := !errors.Is(err, ErrUnavailable) || time.Since(failing)+pause > l.config.RetryFor
		if !over {
			if cause := l.sleep(ctx, pause); cause != nil {
				err = fmt.Errorf("%w (last error: %w)", cause, err)
				over = true
			}
		}
		if over {
			if doubtful && h.Count == 1 { // a further hold is put right by the owner's next request
				l.orphans.take(h, true)
			}
			return grant{}, err
		}
	}
}

// send sends the acquisition once.
func (l *Locker) send(ctx context.Context, h *Hold) (grant, error) {
	bounded, cancel := l.bound(ctx, h.TTL)
	defer cancel()
	g := grant{asked: time.Now()}
	var err error
	g.Answer, err = l.store.Acquire(bounded, h)
	if err == nil && g.Verdict == Granted && !time.Now().Before(renewal.Until(g.asked, h.TTL)) {
		err = fmt.Errorf("%w: the grant of %q took %v, too long for its TTL of %v; raise the TTL",
			ErrUnavailable, h.Name, time.Since(g.asked).Round(time.Millisecond), h.TTL)
	}
	return g, err
}

// bound returns the context of one request: it keeps ctx's values and deadline,
// but not its cancellation, for a request that was sent is worth its answer:
// without it nobody knows what the store has done.
func (l *Locker) bound(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	by := time.Now().Add(min(l.config.RequestTimeout, ttl/3))
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
		by = deadline
	}
	return context.WithDeadline(context.WithoutCancel(ctx), by)
}

// watch makes the lease of a grant and has the watchdog keep it.
func (l *Locker) watch(ctx context.Context, h *Hold, o Options, g grant) (*Lease, error) {
	own := &ownership{locker: l, hold: *h, token: g.Token, doubtful: g.doubtful, count: 1}
	own.first.own = own
	ttl := h.TTL
	if g.TTL > 0 {
		ttl = g.TTL
	}
	lease, err := l.watchdog.Watch(renewal.Spec{
		Key:       h.Name,
		Owner:     h.Owner,
		Ref:       &own.hold,
		TTL:       ttl,
		Granted:   g.asked,
		Fixed:     o.Fixed,
		MaxHold:   o.MaxHold,
		Alive:     o.Alive,
		Heartbeat: o.Heartbeat,
		Context:   context.WithoutCancel(ctx),
		OnLost:    o.OnLost,
	})
	if err != nil {
		return nil, err
	}
	own.lease = lease
	return &own.first, nil
}

// refusal is the error for an answer that did not grant h.
func refusal(h *Hold, a Answer, cause error) error {
	return &NotAcquiredError{Name: h.Name, TTL: max(a.TTL, 0), Foreign: a.Foreign, Cause: cause}
}

// ended returns the cause of the first of the contexts that has ended.
func ended(contexts ...context.Context) error {
	for _, ctx := range contexts {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// The pause before a request is sent again doubles from leastBackoff to
// mostBackoff, and is drawn from its upper half, so that clients which failed
// together do not come back together.
const (
	leastBackoff = 20 * time.Millisecond
	mostBackoff  = 640 * time.Millisecond
)

func backoff(try int) time.Duration {
	d := min(leastBackoff<<min(try, 10), mostBackoff)
	return d/2 + rand.N(d/2)
}

// sleep waits for d on the wheel. It returns the cause if ctx or the locker ends.
func (l *Locker) sleep(ctx context.Context, d time.Duration) error {
	over := make(chan struct{})
	timeout, err := l.wheel.Schedule(d, func() { close(over) })
	if err != nil {
		return err
	}
	defer timeout.Cancel()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closed.Done():
		return ErrClosed
	}
}
