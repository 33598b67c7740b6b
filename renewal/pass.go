package renewal

import (
	"cmp"
	"errors"
	"time"
)

var (
	// errUnconfirmed refuses to pass on a lease that is suspect.
	errUnconfirmed = errors.New("renewal: the machine has slept or its clock was set, and the store has not confirmed the lease since")
	// errRenewing refuses to pass on a lease that might be renewed after its end.
	errRenewing = errors.New("renewal: the lease is being renewed")
)

// Pass ends l as [Lease.Stop] does and returns a lease for the rest of its time, for
// another holder of this process. Key, Owner, Until and the time of the next renewal
// stay; everything else is taken from s, except Granted and First, which are ignored. No
// request is sent.
//
// On an error l is unchanged. The errors are those of [Watchdog.Watch]. Pass also fails
// if l has ended, with l's own [Lease.Err], if l is being renewed, or if l is not to be
// trusted just now (see [Lease.Valid]).
func (l *Lease) Pass(s Spec) (*Lease, error) {
	w := l.watchdog
	s.Key, s.Owner, s.Granted, s.First = l.key, l.owner, time.Now(), 0
	next, err := w.lease(&s, s.Granted)
	if err != nil {
		return nil, err
	}
	if err := w.replace(l, next, &s); err != nil {
		return nil, err
	}
	l.signal()
	w.follow(s.Context, next)
	return next, nil
}

// replace takes next and ends l.
func (w *Watchdog) replace(l, next *Lease, s *Spec) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkClocks()
	now, due := w.clock.now(), l.due
	end, cause := l.ends()
	switch {
	case l.Err() != nil:
		return l.Err()
	case w.draining:
		return ErrClosed
	case !l.trusted():
		return errUnconfirmed
	case end <= now: // which the worker has yet to report
		return w.lost(l.key, cmp.Or(cause, l.overdue()), nil)
	case l.phase != waiting:
		return errRenewing
	}
	next.span = min(l.span, next.ttl)
	next.until.Store(l.until.Load())
	if len(w.suspects) > 0 { // l may be one, to be renewed at once
		due = now
	}
	if err := w.take(next, s, now, due); err != nil {
		return err
	}
	w.end(l, released)
	return nil
}
