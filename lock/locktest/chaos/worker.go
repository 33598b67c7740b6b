package chaos

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/wheel"
)

// worker is a process that uses locks. Everything goes through one store, so that
// requests of all kinds share its pipelines.
type worker struct {
	plan   workerPlan
	report func(event)
	ops    atomic.Int64

	wheel  *wheel.Wheel      // nil if the locker has its own
	store  *redisstore.Store // nil for a quorum
	locker *lock.Locker
	queue  *delayqueue.Queue
	close  []func() error

	closing   context.Context // that closing has; nil: without an end
	finishing context.Context // done: begin nothing new
	giveUp    context.Context // done: stop waiting for what may never be released
}

// open opens what the process uses, the stores by a function.
func (w *worker) open(openStores func() ([]*redisstore.Store, error)) (err error) {
	var c lock.Config
	c.RequestTimeout, c.Poll = w.plan.Request, w.plan.Poll
	qc := delayqueue.Config{Poll: min(w.slow(time.Second), 30*time.Second)}
	c.MaxRunning = w.plan.Running
	if w.plan.Tick > 0 || w.plan.Pool > 0 {
		ticks, err := w.openWheel()
		if err != nil {
			return err
		}
		c.Wheel, qc.Wheel = ticks, ticks
	}
	nodes, err := openStores()
	if err != nil {
		return err
	}
	w.store = nodes[0]
	var store lock.Store = nodes[0]
	if len(nodes) > 1 {
		var stores []lock.Store
		for _, s := range nodes {
			stores = append(stores, s)
		}
		q, err := quorum.New(stores, quorum.Config{NodeTimeout: 500 * time.Millisecond})
		if err != nil {
			return err
		}
		store, w.store = q, nil
		w.close = append(w.close, q.Close)
	}
	if w.locker, err = lock.New(store, c); err != nil {
		return err
	}
	w.close = append(w.close, func() error { return w.locker.Shutdown(w.closingContext()) })
	if w.plan.Queue != nil {
		if w.queue, err = delayqueue.New(w.store, w.plan.Queue.Name, qc); err != nil {
			return err
		}
		w.close = append(w.close, func() error { return w.queue.Shutdown(w.closingContext()) })
	}
	return nil
}

// begin starts the drivers and, in the background, the queue's workers.
func (w *worker) begin(drivers, background *sync.WaitGroup) {
	for _, p := range w.plan.Drivers {
		drivers.Go(func() { w.drive(p) })
	}
	if w.queue != nil {
		for putter := range w.plan.Queue.Putters {
			drivers.Go(func() { w.putMessages(putter) })
		}
		background.Go(w.handleMessages)
	}
}

// openWheel makes the wheel that the process shares with its locks and its queue. If it has
// an executor, tasks of the process occupy that one.
func (w *worker) openWheel() (*wheel.Wheel, error) {
	c := wheel.Config{Tick: w.plan.Tick, Logger: slog.New(slog.DiscardHandler)}
	if w.plan.Pool > 0 {
		pool := wheel.NewPool(w.plan.Pool, w.plan.Room)
		c.Executor = pool
		w.close = append(w.close, func() error { pool.Close(); return nil })
	}
	ticks, err := wheel.New(c)
	if err != nil {
		return nil, err
	}
	w.wheel = ticks
	w.close = append(w.close, func() error { ticks.Stop(); return nil })
	return ticks, nil
}

// occupyPool fills the executor of the wheel for a while, again and again.
func (w *worker) occupyPool() {
	d := newDice(w.plan.Seed, 1<<32)
	for w.sleep(d.span(20*time.Millisecond, time.Second)) {
		long := d.span(10*time.Millisecond, 500*time.Millisecond)
		for range w.plan.Pool + w.plan.Room {
			_, _ = w.wheel.Schedule(0, func() { time.Sleep(long) })
		}
	}
}

func (w *worker) closingContext() context.Context {
	if w.closing == nil {
		return context.Background()
	}
	return w.closing
}

// slow is a time of a driver by the tempo of its process.
func (w *worker) slow(d time.Duration) time.Duration { return d * time.Duration(max(1, w.plan.Tempo)) }

func (w *worker) closeAll() {
	for i := len(w.close) - 1; i >= 0; i-- {
		if err := w.close[i](); err != nil {
			w.report(event{What: evTrouble, Text: "close: " + err.Error()})
		}
	}
}

// sleep returns false if w finishes meanwhile.
func (w *worker) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.finishing.Done():
		return false
	}
}

func (w *worker) drive(p driverPlan) {
	d := newDice(p.Seed, 0)
	for w.finishing.Err() == nil {
		var err error
		switch p.Kind {
		case semaphoreKind:
			err = w.useSemaphore(p, d)
		case latchKind:
			err = w.useLatch(p, d)
		case electionKind:
			err = w.stand(p, d)
		default:
			err = w.useLock(p, d)
		}
		if named, ok := errors.AsType[*lock.NameError](err); ok {
			w.report(event{What: evRefused, Kind: p.Kind, Name: p.Name, Text: named.Reason})
			return
		}
		pause := time.Duration(0)
		switch {
		case err != nil:
			pause = w.slow(d.span(100*time.Microsecond, 20*time.Millisecond))
		case p.Role == crowd:
			pause = w.slow(d.between(100*time.Millisecond, 700*time.Millisecond))
		case p.Calm:
			pause = w.slow(d.span(5*time.Millisecond, 200*time.Millisecond))
		}
		if pause > 0 && !w.sleep(pause) {
			return
		}
	}
}
