package renewal

import (
	"context"
	"errors"
	"time"
)

var (
	// errUnconfirmed refuses to pass on a lease that nobody may rely on just now.
	errUnconfirmed = errors.New("renewal: the machine has slept or its clock was set, and the store has not confirmed the lease since")
	// errRenewing refuses to pass on a lease that might be renewed after its end.
	errRenewing = errors.New("renewal: the lease is being renewed")
)

// Pass ends l as [Lease.Stop] does and returns a lease of what is left of it, for
// another holder of this process: Key and Owner stay, and so do Until and the time
// of the next renewal; everything else is as s says, whose Granted and First are not
// used. Nothing is sent.
//
// On an error l is as it was. The reasons are those of [Watchdog.Watch], and that l
// has ended (its own [Lease.Err]), that it is just being renewed, or that it is not
// to be trusted just now (see [Lease.Valid]).
func (l *Lease) Pass(s Spec) (*Lease, error) {
	w := l.dog
	s.Key, s.Owner, s.Granted, s.First = l.key, l.owner, time.Now(), 0
	if err := s.validate(w.wheel.Tick(), s.Granted); err != nil {
		return nil, err
	}
	if s.Context != nil && s.Context.Err() != nil {
		return nil, w.lost(s.Key, ContextEnded, context.Cause(s.Context))
	}
	next := w.lease(&s)
	if err := w.replace(l, next, &s); err != nil {
		return nil, err
	}
	l.tell()
	w.follow(s.Context, next)
	return next, nil
}

// replace takes next in, and lets l go.
func (w *Watchdog) replace(l, next *Lease, s *Spec) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case l.Err() != nil:
		return l.Err()
	case w.draining:
		return ErrClosed
	case !l.trusted():
		return errUnconfirmed
	case l.phase != waiting:
		return errRenewing
	}
	next.span = l.span
	next.until.Store(l.until.Load())
	if err := w.take(next, s, w.clock.now(), l.due); err != nil {
		return err
	}
	w.end(l, released)
	return nil
}
