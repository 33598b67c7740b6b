package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/logging"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// The defaults and limits of [Config].
const (
	DefaultRequestTimeout = time.Second
	DefaultRetryFor       = 5 * time.Second
	DefaultPoll           = 30 * time.Second
	DefaultMaxPayload     = 1 << 20

	maxPayload = 64 << 20
)

// ownTick is the tick of a queue's own wheel. A wheel sleeps from deadline to deadline,
// so a fine tick costs nothing while there are few deadlines.
const ownTick = time.Millisecond

// Config configures a [Queue]. Its zero value is ready to use.
type Config struct {
	// RequestTimeout bounds one request to the server. Default: 1 s.
	RequestTimeout time.Duration
	// RetryFor bounds a request with all its repetitions, when it fails for a temporary
	// reason and then returns [ErrUnavailable]. It has RequestTimeout at least. A method
	// that sends several requests, for many messages, has RetryFor for each. Workers claim
	// messages without such a limit. Default: 5 s.
	// Negative: no retries.
	RetryFor time.Duration
	// Poll is the longest interval at which a worker with room for more polls without a
	// notification. A test that waits for weeks of virtual time sets it to a day: each poll
	// takes a millisecond of real time. Default: 30 s.
	Poll time.Duration

	// MaxPayload is the most bytes of a payload, up to 64 MiB. While a script copies a payload, the
	// server does nothing else: one of 64 MiB stopped it for 2 s on a busy machine, for which
	// RequestTimeout, and the TTLs of locks on that server, need the time. Default: 1 MiB.
	MaxPayload int
	// MaxLength is the most messages in the queue, including those with workers and dead
	// letters; beyond it Put returns [ErrFull]. Default: no limit.
	MaxLength int64
	// Retention is how long dead letters are kept, from 1 ms up. Workers with room drop
	// older ones within Poll, some dozens in a request and some thousands in a second. The
	// id of a dropped letter is free again. Workers of one queue should use the same value.
	// Default: dead letters are kept until they are revived or cancelled.
	Retention time.Duration

	// Wheel is the timer for due messages. Stop it after the queue: without it workers may
	// claim no more. Default: the queue's own wheel with a tick of 1 ms, from the first Work
	// until Close or Shutdown.
	Wheel *wheel.Wheel
	// Renewal configures the watchdog that renews the workers' leases. Its Wheel and
	// Logger are replaced by those of this Config, and its BatchSize has its default at most.
	Renewal renewal.Config
	// Logger receives the errors that no caller gets, from goroutines of its own; one that blocks
	// misses some, and its panics are ignored. Default: nothing is logged.
	Logger *slog.Logger
}

// withDefaults returns c with its zero fields filled in, apart from Wheel.
func (c Config) withDefaults() Config {
	c.RequestTimeout = cmp.Or(c.RequestTimeout, DefaultRequestTimeout)
	c.RetryFor = cmp.Or(c.RetryFor, DefaultRetryFor)
	c.Poll = cmp.Or(c.Poll, DefaultPoll)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	return c
}

// validate returns an error for an invalid c, whose zero fields are filled in.
func (c Config) validate() error {
	switch {
	case c.RequestTimeout < 0:
		return invalid("RequestTimeout %v is negative; 0 means %v", c.RequestTimeout, DefaultRequestTimeout)
	case c.Poll < 0:
		return invalid("Poll %v is negative; 0 means %v", c.Poll, DefaultPoll)
	case c.MaxPayload < 0 || c.MaxPayload > maxPayload:
		return invalid("MaxPayload %d is outside 1 … %d; 0 means %d", c.MaxPayload, maxPayload, DefaultMaxPayload)
	case c.MaxLength < 0:
		return invalid("MaxLength %d is negative; 0 means no limit", c.MaxLength)
	case c.Retention < 0 || c.Retention > 0 && c.Retention < time.Millisecond:
		return invalid("Retention %v is less than 1ms; 0 means that dead letters are kept until they are revived or cancelled", c.Retention)
	}
	return nil
}

// Queue is a delay queue. Any number of them, in any number of processes, may be open on
// one name. Its methods are safe for concurrent use.
type Queue struct {
	store  *redisstore.Store
	name   string
	keys   []string
	config Config
	log    logging.Logger

	// closed ends with Close or Shutdown, which stop every worker.
	closed context.Context
	close  context.CancelCauseFunc

	settler  settler
	handling atomic.Int64 // messages in hand

	mu      sync.Mutex
	workers sync.WaitGroup // added to under mu, while not closed
	// The first worker makes them, under mu.
	wheel    *wheel.Wheel // of config, or the queue's own
	watchdog *renewal.Watchdog
}

// New returns the queue called name on the server of store. The queue need not exist. New
// sends nothing and, until [Queue.Work], runs nothing. It accepts the names that
// [driver.ValidateName] accepts. Close the queue before the store.
func New(store *redisstore.Store, name string, c Config) (*Queue, error) {
	if store == nil {
		return nil, invalid("New needs a store, got nil: make one with redisstore.Open")
	}
	if err := driver.ValidateName(name); err != nil {
		var refused *lock.NameError
		if errors.As(err, &refused) {
			return nil, invalid("the name of a queue: %s", refused.Reason)
		}
		return nil, err
	}
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	q := &Queue{store: store, name: name, keys: keysOf(name), config: c, log: logging.New(c.Logger)}
	q.settler.queue = q
	q.closed, q.close = context.WithCancelCause(context.Background())
	return q, nil
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Close ends the queue at once: every [Queue.Work], and the lease of every message in a handler.
// The handlers' contexts end with [ErrLost], and their messages are delivered again when the TTL
// of the lease has passed. It does not wait for handlers, and always returns nil. See
// [Queue.Shutdown].
func (q *Queue) Close() error {
	_ = q.Shutdown(ended()) // it reports the handlers that still run
	return nil
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Shutdown ends the queue gracefully: it ends every [Queue.Work], as the end of its context
// does, and waits for the handlers. If ctx ends first, it goes on as [Queue.Close], and returns
// an error if handlers still run. A second Shutdown waits as well.
func (q *Queue) Shutdown(ctx context.Context) error {
	q.mu.Lock()
	q.close(ErrClosed)
	q.mu.Unlock()
	if q.watchdog == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		q.workers.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		if q.handling.Load() > 0 {
			err = fmt.Errorf("delayqueue: %q: handlers still run: %w", q.name, context.Cause(ctx))
		}
	}
	_ = q.watchdog.Close(ctx) // its error is that ctx has ended
	if q.config.Wheel == nil {
		q.wheel.Stop()
	}
	bounded, cancel := context.WithTimeout(ctx, q.config.RequestTimeout)
	defer cancel()
	q.log.Wait(bounded)
	return err
}

// enter registers a worker, which calls workers.Done at its end.
func (q *Queue) enter() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Err() != nil {
		return ErrClosed
	}
	if q.watchdog == nil {
		if err := q.start(); err != nil {
			return err
		}
	}
	q.workers.Add(1)
	return nil
}

// start makes what the workers share. The caller holds mu.
func (q *Queue) start() (err error) {
	if q.wheel = q.config.Wheel; q.wheel == nil {
		if q.wheel, err = wheel.New(wheel.Config{Tick: ownTick, Logger: q.log.Logger}); err != nil {
			return err
		}
	}
	r := q.config.Renewal
	r.Wheel, r.Logger, r.BatchSize = q.wheel, q.log.Logger, min(r.BatchSize, renewal.DefaultBatchSize)
	if q.watchdog, err = renewal.New(leases{q}, r); err != nil && q.config.Wheel == nil {
		q.wheel.Stop()
	}
	return err
}
