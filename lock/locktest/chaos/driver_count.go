package chaos

import (
	"context"
	"time"
)

// useSemaphore takes permits without owners, and returns them.
func (w *worker) useSemaphore(p driverPlan, d dice) error {
	s, wish := w.locker.Semaphore(p.Name), w.drawWish(p, d)
	if _, err := s.TrySetPermits(w.giveUp, p.Count); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(w.giveUp)
	defer cancel(nil)
	if wish.cancel > 0 {
		timer := time.AfterFunc(wish.cancel, func() { cancel(errInterrupted) })
		defer timer.Stop()
	}
	op := w.ops.Add(1)
	w.report(event{What: evCall, Op: op, Kind: semaphoreKind, Name: p.Name, Verb: wish.verb, N: p.Count})
	var err error
	switch {
	case wish.verb == verbTry || p.Count == 0:
		err = s.TryAcquire(ctx, 1)
	case wish.verb == verbWithin:
		err = s.MaxWait(wish.within).Acquire(ctx, 1)
	default:
		err = s.Acquire(ctx, 1)
	}
	if err != nil {
		return w.failed(op, err)
	}
	w.report(event{What: evGot, Op: op})
	w.sleep(min(wish.hold, w.slow(100*time.Millisecond)))
	w.report(event{What: evEnd, Op: op, At: now()})
	w.release(op, s.Release(context.Background(), 1))
	return nil
}

// useLatch closes a latch and opens it again, or waits for it.
func (w *worker) useLatch(p driverPlan, d dice) error {
	l, op := w.locker.Latch(p.Name), w.ops.Add(1)
	if p.First { // this driver sets; the others wait
		w.report(event{What: evCall, Op: op, Kind: latchKind, Name: p.Name, Verb: verbTry})
		done, err := l.TrySetCount(context.Background(), 2)
		if err != nil || !done {
			_ = w.failed(op, err)
			w.sleep(w.slow(5 * time.Millisecond))
			return err
		}
		w.report(event{What: evGot, Op: op})
		w.sleep(w.slow(d.span(2*time.Millisecond, 100*time.Millisecond)))
		w.report(event{What: evEnd, Op: op, At: now()})
		err = l.CountDown(context.Background())
		if err == nil {
			err = l.CountDown(context.Background())
		}
		w.release(op, err)
		return err
	}
	ctx, cancel := context.WithTimeoutCause(w.giveUp, w.slow(d.span(5*time.Millisecond, 3*time.Second)), errInterrupted)
	defer cancel()
	w.report(event{What: evCall, Op: op, Kind: latchKind, Name: p.Name, Verb: verbLock})
	if err := l.Wait(ctx); err != nil {
		return w.failed(op, err)
	}
	w.report(event{What: evGot, Op: op})
	w.release(op, nil)
	return nil
}
