package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// The defaults of [Config], and the longest time to live that is accepted: a
// lease is a short loan.
const (
	DefaultTTL            = 30 * time.Second
	DefaultRequestTimeout = time.Second
	DefaultRetryFor       = 5 * time.Second
	DefaultPoll           = 5 * time.Second
	DefaultMaxDeferred    = 1_000_000
	DefaultMaxRunning     = 64
	MaxTTL                = 365 * 24 * time.Hour
)

// Config says how a [Locker] works. Its zero value is ready to use.
type Config struct {
	// TTL is how long the store keeps a lock without a renewal, so at most how
	// long a dead holder blocks the others. At least four ticks of the wheel, at
	// most MaxTTL. Default: 30 s.
	TTL time.Duration

	// RequestTimeout bounds one request to the store. A third of the lock's TTL
	// bounds it too. It is also how long a method that begins with Try, and an Unlock,
	// takes at most; within it, what fails soon is sent again. Default: 1 s.
	RequestTimeout time.Duration

	// RetryFor is how long a request that neither acquires nor releases is sent again
	// if it fails for a reason that may pass: one that reads or changes a count, or
	// looks into locks. Acquisitions are sent again as long as their method waits.
	// Default: 5 s. Negative: never sent again.
	RetryFor time.Duration

	// Poll is how often, at least, a waiting process asks the store although
	// nothing was heard of a release. Default: 5 s.
	Poll time.Duration

	// MaxWaiters is how many acquisitions may wait in this process for one lock.
	// Those beyond it are refused with [ErrTooManyWaiters]. Default: no limit.
	MaxWaiters int

	// MaxDeferred is how many deferred functions there may be in this process that
	// wait, or run. Each takes about two kilobytes. Those beyond it are refused with
	// [ErrTooManyDeferred]. Default: 1,000,000.
	MaxDeferred int

	// MaxRunning is how many deferred functions run at once, each in a goroutine.
	// While that many do, locks are not asked for on behalf of others, except that
	// those which stand in line already may be granted theirs, and then keep it until
	// there is room. A function does not count while it waits, with the context that
	// it was given, for a lock or for another deferred function. Default: 64.
	MaxRunning int

	// Wheel runs the renewals, the waiting and the deadlines of requests: one with a
	// limit needs room for each of them. Default: a wheel of its own, which
	// Close stops.
	Wheel *wheel.Wheel

	// Renewal configures the watchdog. Its Wheel, Logger and Package are set from here.
	Renewal renewal.Config

	// Logger hears what no caller can be told. Default: nothing is logged.
	Logger *slog.Logger
}

// withDefaults returns c with its zero fields filled in.
func (c Config) withDefaults() Config {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.RetryFor == 0 {
		c.RetryFor = DefaultRetryFor
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.MaxDeferred == 0 {
		c.MaxDeferred = DefaultMaxDeferred
	}
	if c.MaxRunning == 0 {
		c.MaxRunning = DefaultMaxRunning
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports what is wrong with c, whose zero fields are filled in. tick is
// that of the wheel in use.
func (c Config) validate(tick time.Duration) error {
	if err := validateTTL(c.TTL, tick); err != nil {
		return err
	}
	if c.RequestTimeout < 0 {
		return fmt.Errorf("lock: RequestTimeout %v is negative; accepted are positive durations, 0 for %v", c.RequestTimeout, DefaultRequestTimeout)
	}
	if c.MaxWaiters < 0 {
		return fmt.Errorf("lock: MaxWaiters %d is negative; accepted are positive numbers, 0 for no limit", c.MaxWaiters)
	}
	if c.MaxDeferred < 0 {
		return fmt.Errorf("lock: MaxDeferred %d is negative; accepted are positive numbers, 0 for %d", c.MaxDeferred, DefaultMaxDeferred)
	}
	if c.MaxRunning < 0 {
		return fmt.Errorf("lock: MaxRunning %d is negative; accepted are positive numbers, 0 for %d", c.MaxRunning, DefaultMaxRunning)
	}
	if c.Poll < 0 {
		return fmt.Errorf("lock: Poll %v is negative; accepted are positive durations, 0 for %v", c.Poll, DefaultPoll)
	}
	return nil
}

// validateTTL refuses a TTL that the watchdog cannot renew in time.
func validateTTL(ttl, tick time.Duration) error {
	if least := minTTL(tick); ttl < least || ttl > MaxTTL {
		return &TTLError{TTL: ttl, Min: least, Max: MaxTTL}
	}
	return nil
}

// minTTL is the shortest TTL that the watchdog can renew in time.
func minTTL(tick time.Duration) time.Duration { return max(4*tick, 10*time.Millisecond) }

// Locker makes lock handles that share a store, a wheel and a watchdog. A process
// needs one for each store. Its methods may be called at the same time.
type Locker struct {
	store    Store
	config   Config
	wheel    *wheel.Wheel
	ownWheel bool
	watchdog *renewal.Watchdog
	client   Client
	owners   atomic.Int64 // the number of the latest owner

	// closed ends with Close; its Done stops every wait of this locker.
	closed context.Context
	close  context.CancelCauseFunc

	deferral  deferral
	cleanup   cleanup
	confirmed confirmed
	unlocks   activity // releases of leases that are under way
	announcer announcer

	mu     sync.Mutex
	queues map[queueKey]*queue // guarded by mu; holds the queues that have not ended

	waiting map[queueKey]int // guarded by mu; how many wait for a lock, if any, and there is a limit

	active sync.WaitGroup // acquisitions, deferred functions until they are done, and ends of queues; added to under mu, while not closed or not zero
}

// New returns a locker on store. It sends nothing yet. Close it when done.
func New(store Store, c Config) (*Locker, error) {
	if store == nil {
		return nil, errors.New("lock: New needs a store, got nil")
	}
	c = c.withDefaults()
	l := &Locker{store: store, config: c, wheel: c.Wheel, queues: make(map[queueKey]*queue), waiting: make(map[queueKey]int)}
	if l.wheel == nil {
		w, err := wheel.New(wheel.Config{Logger: c.Logger})
		if err != nil {
			return nil, err
		}
		l.wheel, l.ownWheel = w, true
	}
	if err := l.start(); err != nil {
		if l.ownWheel {
			l.wheel.Stop()
		}
		return nil, err
	}
	return l, nil
}

// start finishes a locker whose wheel runs.
func (l *Locker) start() error {
	if err := l.config.validate(l.wheel.Tick()); err != nil {
		return err
	}
	r := l.config.Renewal
	r.Wheel, r.Logger, r.Package = l.wheel, l.config.Logger, packageName
	watchdog, err := renewal.New(&releaser{l.store, l}, r)
	if err != nil {
		return err
	}
	l.watchdog = watchdog
	l.client = newClient()
	l.closed, l.close = context.WithCancelCause(context.Background())
	l.deferral.init(l)
	l.cleanup.init(l)
	l.announcer.init(l)
	return nil
}

// ClientID returns the part before the colon of every owner that this locker
// makes: a random UUID.
func (l *Locker) ClientID() string { return l.client.ID }

// enter counts an acquisition in, unless the locker is closed.
func (l *Locker) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Err() != nil {
		return false
	}
	l.active.Add(1)
	return true
}

// newHold returns a hold with an owner that nobody else has.
func (l *Locker) newHold(kind Kind, name string, ttl time.Duration) *Hold {
	return &Hold{
		Kind:  kind,
		Name:  name,
		Owner: l.client.ID + ":" + strconv.FormatInt(l.owners.Add(1), 10),
		Count: 1,
		TTL:   ttl,
	}
}

// newUUID returns a random UUID of version 8: those of Redisson's clients are of version
// 4, so that a store can tell them apart.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
