package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

var errHandler = errors.New("chaos: the handler failed")

// putMessages puts messages with new ids, one after the other.
func (w *worker) putMessages(putter int) {
	d := newDice(w.plan.Seed, uint64(putter))
	for n := 1; w.sleep(w.slow(d.between(0, 2*w.plan.Queue.Every))); n++ {
		op := w.ops.Add(1)
		id := fmt.Sprintf("%s/%d.%d", w.locker.ClientID(), putter, n)
		w.report(event{What: evPut, Op: op, Kind: queueKind, Name: id})
		m := delayqueue.Message{ID: id, Payload: []byte("mail"), Delay: w.slow(d.span(time.Millisecond, time.Second))}
		if d.chance(50) {
			m.Delay = 0
		}
		ctx, cancel := context.WithTimeout(context.Background(), d.span(10*time.Millisecond, 4*time.Second))
		_, err := w.queue.Put(ctx, m)
		cancel()
		if err != nil {
			_ = w.failed(op, err)
			continue
		}
		w.report(event{What: evAccepted, Op: op})
	}
}

// handleMessages works for the queue until it is closed.
func (w *worker) handleMessages() {
	q := w.plan.Queue
	for {
		err := w.queue.Work(context.Background(), w.handleMessage, delayqueue.WorkerConfig{
			Concurrency: q.Concurrency, TTL: q.TTL, MaxAttempts: -1,
			Backoff: delayqueue.Exponential(10*time.Millisecond, time.Second),
			Report: func(r delayqueue.Report) {
				if r.Outcome == delayqueue.Done {
					w.report(event{What: evHandled, Name: r.ID, Token: r.Token})
				}
			},
		})
		if err == nil || errors.Is(err, delayqueue.ErrClosed) {
			return
		}
		w.report(event{What: evTrouble, Text: "queue: " + err.Error()}) // the server refused the very first request
		time.Sleep(w.slow(100 * time.Millisecond))
	}
}

func (w *worker) handleMessage(ctx context.Context, m *delayqueue.Delivery) error {
	op := w.ops.Add(1)
	d := newDice(w.plan.Seed, uint64(m.Token))
	begin := now()
	w.report(event{What: evBegin, Op: op, At: begin, Kind: queueKind, Name: m.ID, Token: m.Token, TTL: w.plan.Queue.TTL})
	work := w.slow(d.span(time.Millisecond, 10*time.Millisecond))
	if d.chance(3) {
		work = d.between(w.plan.Queue.TTL/2, 2*w.plan.Queue.TTL)
	}
	end := begin.add(work)
	last, open, told := begin, begin, instant(0)
	for {
		at := now()
		valid, live := m.Valid(), ctx.Err() == nil
		if valid {
			last = at
		}
		if live {
			open = at
		}
		if at.sub(told) > 20*time.Millisecond {
			told = at
			w.report(event{What: evValid, Op: op, At: last})
		}
		if !live || at >= end {
			break
		}
		pause(ctx, min(w.slow(2*time.Millisecond), end.sub(at)))
	}
	w.report(event{What: evContext, Op: op, At: open})
	w.report(event{What: evStopped, Op: op, At: last})
	if d.chance(3) {
		return errHandler
	}
	return ctx.Err()
}
