package pgstore

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// A mutex or a fair lock without a queue is changed by one statement. If its function leaves the
// decision to the machine, it has returned the row, and a second statement saves the step.

// exclusive reports whether the locks of a kind have their owner in a column.
func exclusive(k driver.Kind) bool { return k == driver.KindMutex || k == driver.KindFair }

// Acquire requests a hold, see [driver.Store].
func (s *Store) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	a, _, err := s.AcquireProposing(ctx, h, 0)
	return a, err
}

// AcquireProposing requests a hold and proposes a mutex' token, see [driver.Fencer].
func (s *Store) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (a driver.Answer, clock time.Time, err error) {
	w, err := s.window(ctx)
	if err != nil {
		return a, clock, err
	}
	st := &step{name: h.Name, asks: true}
	st.do = func(state *machine.State, now time.Time) (sent []machine.Message) {
		a, sent = state.AcquireProposing(now, h, token)
		clock, st.confirms = now, a.Verdict == driver.Granted
		return sent
	}
	decided := false
	if exclusive(h.Kind) {
		if a, clock, decided, err = s.acquire(ctx, h, token, w, st); err != nil {
			return driver.Answer{}, time.Time{}, err
		}
	}
	if !decided {
		err = s.steps(ctx, w, st)
	}
	if err != nil {
		return driver.Answer{}, time.Time{}, err
	}
	if a.Verdict != driver.Granted {
		clock = time.Time{}
	}
	a.Silent = s.config.Poll && a.Verdict == driver.Refused
	return a, clock, nil
}

// acquire requests a mutex or a fair lock. Otherwise the step has the row.
func (s *Store) acquire(ctx context.Context, h *driver.Hold, proposed int64, w *window, st *step) (a driver.Answer, clock time.Time, decided bool, err error) {
	waits, reserve := h.Queue.Subscribed, h.Queue.Reserve
	if h.Kind == driver.KindFair {
		waits, reserve, proposed = h.Queue.Keep > 0, 0, 0
	}
	var r row
	var token, reserved *int64
	args := []any{h.Name, h.Owner, h.Count, h.TTL.Milliseconds(), waits, proposed, reserve, w.ranged()}
	if err := s.request(ctx, s.sql.acquire, args, &r, &token, &reserved); err != nil {
		return a, clock, false, err
	}
	switch r.verdict {
	case decide:
		st.row = &r
		return a, clock, false, nil
	case refused:
		a.Wait = r.wait()
	case done:
		a.Verdict, a.Token, a.Reserved = driver.Granted, *token, *reserved
	default:
		a.Verdict = driver.NotHeld
	}
	return a, r.now(), true, nil
}

// Release lowers the holds of an owner, see [driver.Store]. It has no deadline.
func (s *Store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	st := &step{name: h.Name, confirms: true, do: func(state *machine.State, now time.Time) (sent []machine.Message) {
		held, sent = state.Release(now, h)
		return sent
	}}
	if exclusive(h.Kind) && h.Keep == 0 {
		var r row
		if err := s.request(ctx, s.sql.release, []any{h.Name, h.Owner, h.Count, h.TTL.Milliseconds()}, &r); err != nil {
			return false, err
		}
		if r.verdict != decide {
			return r.verdict == done, nil
		}
		st.row = &r
	}
	if err := s.steps(ctx, nil, st); err != nil {
		return false, err
	}
	return held, nil
}
