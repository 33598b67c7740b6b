package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// grant is a store's yes, together with an instant before it was given: when it was
// asked, at the earliest.
type grant struct {
	Answer
	asked time.Time
	// handed: it came with another owner's release, for as long as was offered.
	handed bool
	// relay is nil if the lease is not to be passed on.
	relay *relay
	// lease, unless it is nil, is what the store granted before to another holder of
	// this process.
	lease *Lease
}

// acquisition is one caller's wish for one hold.
type acquisition struct {
	hold    *Hold
	options Options

	// ctx is the caller's. It bounds the requests, too.
	ctx context.Context
	// patience ends with ctx, or earlier if the caller does not want to wait
	// longer. It bounds the waiting alone: a request that was sent is worth its
	// answer.
	patience context.Context
	// wait is false if the caller does not want to wait at all.
	wait bool

	// doubtful: a request went unanswered and may yet arrive at the store, even
	// after the release.
	doubtful bool
	// placed: the store may keep a place in its queue for the hold.
	placed bool
	// refusals counts how often it was refused as the head of its queue.
	refusals int
	// lined is what the store said when it put the hold in line, if it has.
	lined grant
}

// errWaited is the cause with which a wait that had its own limit ends.
var errWaited = errors.New("lock: waited as long as asked")

// gaveUp returns why the caller gave up waiting: nil if it is only that its own
// limit is over.
func (a *acquisition) gaveUp() error {
	if cause := context.Cause(a.patience); cause != errWaited { //nolint:errorlint // it is made here and never wrapped
		return cause
	}
	return nil
}

// refused is the error for the store's refusal.
func (a *acquisition) refused(by Answer, cause error) error {
	return &NotAcquiredError{Name: a.hold.Name, Kind: a.hold.Kind, TTL: max(by.TTL, 0), Foreign: by.Foreign, Cause: cause}
}

// acquire gets the hold granted and puts the lease under the watchdog.
func (l *Locker) acquire(a *acquisition) (*Lease, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.asking.Done()
	g, err := l.obtain(a)
	if err != nil {
		return nil, err
	}
	return l.lend(a, g)
}

// obtain asks the store for the hold, and again whenever that is worth it while
// patience lasts.
func (l *Locker) obtain(a *acquisition) (grant, error) {
	g, err := l.contend(a)
	return l.settled(a, g, err)
}

// settled ends the asking for a hold. Whatever ends it without a grant, the store is
// left without a trace of the hold: at once where the store has said so, else by the
// orphans' sweep.
func (l *Locker) settled(a *acquisition, g grant, err error) (grant, error) {
	if err != nil {
		if a.doubtful || a.placed {
			l.orphans.take(a.hold, a.doubtful)
		}
		return grant{}, err
	}
	if cause := ended(a.ctx, l.closed); cause != nil {
		if g.lease != nil {
			l.unwanted(g.lease)
		} else {
			l.finish(g.relay)
			l.orphans.take(a.hold, false)
		}
		return grant{}, fmt.Errorf("lock: %q was granted too late and is given back: %w", a.hold.Name, cause)
	}
	return g, nil
}

// lend makes the lease of a grant, and has people told whose it is.
func (l *Locker) lend(a *acquisition, g grant) (*Lease, error) {
	if g.lease != nil {
		return g.lease, nil
	}
	lease, err := l.watch(a, g)
	if err != nil {
		l.finish(g.relay)
		l.orphans.take(a.hold, false)
		return nil, err
	}
	l.announcer.begin()
	return lease, nil
}

// contend gets the hold granted, or an error.
func (l *Locker) contend(a *acquisition) (grant, error) {
	g, waits, err := l.try(a)
	if waits {
		return l.wait(a, g.Answer)
	}
	return g, err
}

// try asks for the hold, unless there are others to line up behind. If waits, it is
// to be waited for; g is the refusal then, if the store was asked.
func (l *Locker) try(a *acquisition) (g grant, waits bool, err error) {
	if a.wait && l.waitsFor(a.hold) {
		return grant{}, true, nil
	}
	g, err = l.ask(a)
	switch {
	case err != nil:
		return g, false, err
	case g.Verdict != Refused:
		g.relay = l.relay(a, g)
		return g, false, nil
	case !a.wait:
		return grant{}, false, a.refused(g.Answer, nil)
	}
	return g, true, nil
}

// ask sends the acquisition until the store has answered it, or has not for
// [Config.RetryFor]. Sending it again is safe: a store grants an owner what it
// has.
func (l *Locker) ask(a *acquisition) (grant, error) {
	var failing time.Time
	for try := 0; ; try++ {
		g, err := l.send(a.ctx, a.hold)
		if err == nil {
			a.placed = a.placed || g.Verdict == Refused && a.hold.Wait > 0
			if !g.At.IsZero() {
				a.lined = g
			}
			return g, nil
		}
		a.doubtful = a.doubtful || !errors.Is(err, ErrNotDone)
		if failing.IsZero() {
			failing = g.asked
		}
		pause := backoff(try)
		over := !errors.Is(err, ErrUnavailable) || time.Since(failing)+pause > l.config.RetryFor
		if !over {
			if cause := l.sleep(a.patience, pause); cause != nil {
				err = fmt.Errorf("%w (last error: %w)", cause, err)
				over = true
			}
		}
		if over {
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
	return withDeadline(ctx, by)
}

// watch makes the lease of a grant and has the watchdog keep it.
func (l *Locker) watch(a *acquisition, g grant) (*Lease, error) {
	own := newOwnership(l, *a.hold, g.Token, a.doubtful)
	own.hold.Handed = g.handed
	own.relay = g.relay
	spec := own.spec(a)
	spec.Granted, spec.First = g.asked, g.TTL
	if !g.handed && g.TTL > 0 {
		spec.TTL = g.TTL
	}
	lease, err := l.watchdog.Watch(spec)
	if err != nil {
		return nil, err
	}
	own.lease = lease
	return &own.first, nil
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
