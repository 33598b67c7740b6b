package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/wheel"
)

// The defaults and limits of [WorkerConfig].
const (
	DefaultConcurrency = 16
	DefaultTTL         = 30 * time.Second
	DefaultMaxAttempts = 10
	DefaultBackoff     = time.Second
	DefaultMaxBackoff  = 10 * time.Minute

	maxConcurrency = 1 << 16
	minTTL         = 100 * time.Millisecond
	maxTTL         = 24 * time.Hour
)

// Handler does the work of a message. If it returns nil, the message is done. If it
// returns an error or panics, the message is tried again; see [RetryAfter] and [Reject].
//
// Its context ends with cause [ErrLost] when the lease is lost; then the work is another
// worker's. It ends with cause [ErrClosed] when the worker ends and [WorkerConfig.Grace]
// is over. It carries the values of the context of [Queue.Work]. A handler that ignores
// the end of its context keeps its place in the worker.
type Handler func(ctx context.Context, d *Delivery) error

// WorkerConfig configures a worker. Its zero value is ready to use.
type WorkerConfig struct {
	// Concurrency is the most messages that are handled at the same time, and that the
	// worker claims. Default: 16.
	Concurrency int

	// TTL is how long a worker has a message if it does not renew the lease: 100 ms, or
	// four ticks of the wheel if that is longer, to 24 h. Default: 30 s.
	TTL time.Duration
	// MaxHold ends the lease of a message that is handled for longer, since a hanging
	// handler would keep it for ever. Default: no limit.
	MaxHold time.Duration

	// MaxAttempts is how often a message is tried before it becomes a dead letter. An
	// attempt whose worker died counts. Workers of one queue should use the same value.
	// Default: 10. Negative: no limit.
	MaxAttempts int
	// Backoff is how long a message waits after a failed attempt. Default: [Exponential]
	// from 1 s to 10 min.
	Backoff Backoff

	// Grace is how long handlers may continue when the worker ends, before their contexts
	// end too. Default: without a limit. Negative: not at all.
	Grace time.Duration

	// Report is called after each delivery, by the goroutine of its handler, before the
	// worker takes another message in its place. Default: no reports.
	Report func(Report)
}

// withDefaults returns c with its zero fields filled in.
func (c WorkerConfig) withDefaults() WorkerConfig {
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, DefaultMaxAttempts)
	if c.Backoff == nil {
		c.Backoff = Exponential(DefaultBackoff, DefaultMaxBackoff)
	}
	return c
}

// validate returns an error for an invalid c, whose zero fields are filled in, on a wheel
// with the given tick.
func (c WorkerConfig) validate(tick time.Duration) error {
	least := max(minTTL, 4*tick) // see [renewal.Spec.TTL]
	switch {
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return invalid("Concurrency %d is outside 1 … %d; 0 means %d", c.Concurrency, maxConcurrency, DefaultConcurrency)
	case c.TTL < least || c.TTL > maxTTL:
		return invalid("TTL %v is outside %v … %v; 0 means %v", c.TTL, least, maxTTL, DefaultTTL)
	case c.MaxHold < 0:
		return invalid("MaxHold %v is negative; 0 means no limit", c.MaxHold)
	}
	return nil
}

// The pauses after failed requests of a worker.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 5 * time.Second
)

// worker is one [Queue.Work]. Its fields belong to its own goroutine, unless noted
// otherwise.
type worker struct {
	queue   *Queue
	handler Handler
	config  WorkerConfig

	// ending ends when the worker is to claim no more.
	ending context.Context
	// base is the parent of the handlers' contexts; cut ends it.
	base context.Context
	cut  context.CancelCauseFunc

	keys []string // those of the queue, and that of the worker's claims
	seq  int64    // the number of the latest claim
	// again: the reply to that claim was lost.
	again bool

	// wake makes the worker check its state. news does that if a message may be due earlier
	// than the worker knows. Any goroutine may send.
	wake, news chan struct{}
	// busy counts the messages in hand. Any goroutine may change it.
	busy atomic.Int64

	alarm wheel.Timer
	// next is when to poll. rest is the earliest time for that, also after a
	// notification.
	next, rest time.Time
	failures   int  // since the last success
	served     bool // the server has answered once
}

// Work handles messages until ctx ends or the queue is closed. Then it claims no more,
// gives back messages that were claimed and not begun, waits for the handlers, and
// returns nil. Any number of workers may run, in one process and in many.
//
// Without messages, it returns within [Config.RequestTimeout] of the end; within two if the
// reply to its last claim is lost, whose messages it then gives back. With messages, it
// sends the outcomes until the server answers, until their leases are over, and for a
// RequestTimeout more if one is in flight then.
//
// While the server is unavailable, Work waits for it. It returns an error only if waiting
// is useless: an invalid config, [ErrClosed], or a server that permanently refuses the
// very first request.
func (q *Queue) Work(ctx context.Context, h Handler, c WorkerConfig) error {
	if h == nil {
		return invalid("Work needs a handler, got nil")
	}
	c = c.withDefaults()
	if err := q.enter(); err != nil {
		return err
	}
	defer q.workers.Done()
	if err := c.validate(q.wheel.Tick()); err != nil {
		return err
	}
	w := &worker{
		queue: q, handler: h, config: c,
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1),
	}
	w.renameClaims()
	var subscribing sync.WaitGroup
	defer subscribing.Wait()
	ending, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(q.closed, func() { end(ErrClosed) })()
	w.ending = ending
	w.base, w.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	defer w.cut(nil)
	w.alarm.InitOnWorker(q.wheel, w.notify)
	defer w.alarm.Cancel()
	subscribing.Go(w.subscribe)
	return w.run()
}

// notify makes the worker check its state.
func (w *worker) notify() { signal(w.wake) }

// signal sends to a channel that has room for one.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// run works until the end.
func (w *worker) run() error {
	var err error
	for w.ending.Err() == nil && err == nil {
		if w.room() > 0 && !time.Now().Before(w.next) {
			err = w.poll()
		} else {
			err = w.sleep()
		}
	}
	w.windUp()
	return err
}

// room returns how many more messages the worker can take.
func (w *worker) room() int { return w.config.Concurrency - int(w.busy.Load()) }

// sleep waits until there may be work.
func (w *worker) sleep() error {
	if w.room() > 0 {
		if _, err := w.alarm.ArmAt(w.next); err != nil && w.queue.closed.Err() == nil { // after that, ending follows
			return fmt.Errorf("delayqueue: %q: the timer for due messages failed: %w", w.queue.name, err)
		}
	}
	select {
	case <-w.wake:
	case <-w.news:
		w.next = w.rest
	case <-w.ending.Done():
	}
	return nil
}

// poll claims due messages, and sets the time of the next poll.
func (w *worker) poll() error {
	c, err := w.claim(min(w.room(), batch))
	if err != nil && !w.served && !passing(err) {
		return fmt.Errorf("delayqueue: %q: %w", w.queue.name, err) // trying again would not help
	}
	if err != nil {
		w.pause("the server does not answer", err)
		return nil
	}
	w.served = true
	w.next = c.answered.Add(w.queue.config.Poll)
	if c.pause >= 0 {
		w.next = c.answered.Add(min(c.pause, w.queue.config.Poll))
	}
	if err := w.begin(c); err != nil && w.ending.Err() == nil {
		w.pause("messages are given back: their leases cannot be kept", err)
		return nil
	}
	w.failures = 0
	return nil
}

// pause stops claims for a while, for longer with each failure.
func (w *worker) pause(why string, err error) {
	d := backoff.Pause(w.failures, firstPause, mostPause)
	w.failures++
	w.rest = time.Now().Add(d)
	w.next = w.rest
	w.queue.log.Warn("delayqueue: "+why+"; trying again", "queue", w.queue.name, "after", d, "err", err)
}

// subscribe keeps a subscription to notifications of messages that are due earlier than the
// others, until the worker ends. Each attempt ends with a poll, which finds messages that were
// put before; without a subscription, polls find all messages.
func (w *worker) subscribe() {
	for w.ending.Err() == nil {
		ctx, cancel := context.WithTimeout(w.ending, w.queue.config.RequestTimeout)
		subscription, err := w.queue.store.Listen(ctx, w.queue.keys[channelKey], func() { signal(w.news) })
		cancel()
		signal(w.news)
		switch {
		case err == nil:
			<-w.ending.Done()
			subscription.Close()
		case w.ending.Err() == nil:
			w.queue.log.Warn("delayqueue: no notice of messages that are due earlier; trying again",
				"queue", w.queue.name, "after", mostPause, "err", err)
		}
		backoff.Sleep(w.ending, mostPause)
	}
}

// windUp waits for the handlers, and ends their contexts after Grace. If the reply to the last
// claim was lost, it gives back the messages: without that they stay leased for a TTL, and
// unhandled.
func (w *worker) windUp() {
	if w.again {
		if c, err := w.claim(0); err == nil {
			_ = w.begin(c) // gives them back, since the worker is ending
		}
	}
	switch grace := w.config.Grace; {
	case grace < 0:
		w.cut(ErrClosed)
	case grace > 0:
		defer time.AfterFunc(grace, func() { w.cut(ErrClosed) }).Stop()
	}
	for w.busy.Load() > 0 {
		<-w.wake
	}
}
