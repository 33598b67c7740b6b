package chaos

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
)

// stand stands for election until it has led for one term, or gives up.
func (w *worker) stand(p driverPlan, d dice) error {
	op, wish := w.ops.Add(1), w.drawWish(p, d)
	ctx, cancel := context.WithCancelCause(w.giveUp)
	defer cancel(nil)
	if wish.cancel > 0 {
		timer := time.AfterFunc(wish.cancel, func() { cancel(errInterrupted) })
		defer timer.Stop()
	}
	w.report(event{What: evCall, Op: op, Kind: electionKind, Name: p.Name, Verb: verbLock, TTL: p.TTL, N: 1, Within: wish.cancel})
	led := false
	err := elect.New(w.locker, p.Name, lock.Options{TTL: p.TTL}).Run(ctx, func(ctx context.Context, term int64) error {
		got := now()
		if led { // it was elected again after a loss
			op = w.ops.Add(1)
			w.report(event{What: evCall, Op: op, Kind: electionKind, Name: p.Name, Verb: verbLock, TTL: p.TTL, N: 1})
		}
		led = true
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the term has ended, and the leader's function with it
		}
		w.report(event{What: evGot, Op: op, At: got, Token: term, Owner: w.locker.ClientID()})
		last, end := got, got.add(wish.hold)
		for at := got; ctx.Err() == nil; at = now() {
			if last = at; at >= end {
				break
			}
			pause(ctx, min(w.slow(2*time.Millisecond), end.sub(at)))
		}
		w.report(event{What: evEnd, Op: op, At: last, Lost: lossOf(context.Cause(ctx))})
		return nil
	})
	if !led {
		return w.failed(op, err)
	}
	w.release(op, err)
	return err
}
