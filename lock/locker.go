package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/logging"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// The other defaults of [Config].
const (
	defaultRetryFor    = 5 * time.Second
	defaultPoll        = 5 * time.Second
	defaultMaxDeferred = 1_000_000
	defaultMaxRunning  = 64
)

// Config configures a [Locker]. Its zero value is ready to use.
type Config struct {
	// TTL is how long the store keeps a lock without a renewal. A dead holder blocks the
	// others for at most this long, and for up to a Poll more if it was granted the lock while
	// they waited. At least four ticks of the wheel and 10 ms, at most a year. Default: 30 s.
	TTL time.Duration
	// RequestTimeout bounds one request to the store, as does a third of the lock's TTL; and
	// all requests of Unlock and of each method whose name begins with Try. Default: 1 s.
	RequestTimeout time.Duration
	// RetryFor bounds a call that reads or changes a count or inspects locks, with all its
	// repetitions; it has a RequestTimeout at least. Default: 5 s. Negative: no repetition.
	RetryFor time.Duration
	// Poll is the longest pause between two requests of a waiting process that receives no
	// message about a release. Default: 5 s.
	Poll time.Duration
	// MaxWaiters is how many acquisitions may wait in this process for one lock. Further
	// ones fail with [ErrTooManyWaiters]. Default: no limit.
	MaxWaiters int
	// MaxDeferred is how many deferred functions may wait or run in this process, at about two
	// kilobytes each. Further ones fail with [ErrTooManyDeferred]. Default: 1,000,000.
	MaxDeferred int
	// MaxRunning is how many deferred functions run at once, and how many first requests are
	// in flight for them at each group of the store, such as a cluster's node. Those that wait
	// for a lock or another deferred function, with their context, do not count. Default: 64.
	MaxRunning int

	// Wheel ends leases in time, and wakes waiters to ask again; neither its limit on pending timeouts
	// nor its executor refuses these. Stopped before the locker, it loses both. Default: the locker's own.
	Wheel *wheel.Wheel
	// Renewal configures the watchdog. Its Wheel, Logger and Package are set by [New].
	Renewal renewal.Config
	// Label describes this process to those who inspect its locks, beside its host, name and
	// PID: a role, a job, a version. At most [driver.MaxName] bytes, no control characters.
	Label string
	// Observer receives reports of acquisitions and holds.
	Observer *observe.Observer
	// Logger receives, in the background, what no method can return; it may block and panic.
	Logger *slog.Logger
}

// withDefaults returns c with defaults for its zero fields.
func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, driver.DefaultTTL)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, driver.DefaultRequestTimeout)
	c.RetryFor = cmp.Or(c.RetryFor, defaultRetryFor)
	c.Poll = cmp.Or(c.Poll, defaultPoll)
	c.MaxDeferred = cmp.Or(c.MaxDeferred, defaultMaxDeferred)
	c.MaxRunning = cmp.Or(c.MaxRunning, defaultMaxRunning)
	o := *cmp.Or(c.Observer, &observe.Observer{}) // which its user may change
	c.Observer = &o
	return c
}

// validate returns an error if c, with its defaults filled in, is invalid on a wheel with
// that shortest TTL.
func (c Config) validate(minTTL time.Duration) error {
	switch {
	case c.RequestTimeout < 0:
		return fmt.Errorf("lock: RequestTimeout %v is negative; accepted are positive durations, 0 for %v", c.RequestTimeout, driver.DefaultRequestTimeout)
	case c.MaxWaiters < 0:
		return fmt.Errorf("lock: MaxWaiters %d is negative; accepted are positive numbers, 0 for no limit", c.MaxWaiters)
	case c.MaxDeferred < 0:
		return fmt.Errorf("lock: MaxDeferred %d is negative; accepted are positive numbers, 0 for %d", c.MaxDeferred, defaultMaxDeferred)
	case c.MaxRunning < 0:
		return fmt.Errorf("lock: MaxRunning %d is negative; accepted are positive numbers, 0 for %d", c.MaxRunning, defaultMaxRunning)
	case len(c.Label) > driver.MaxName || !utf8.ValidString(c.Label) || strings.ContainsFunc(c.Label, unicode.IsControl):
		return fmt.Errorf("lock: Label is unfit: accepted are up to %d bytes of UTF-8 without control characters", driver.MaxName)
	case c.Poll < 0:
		return fmt.Errorf("lock: Poll %v is negative; accepted are positive durations, 0 for %v", c.Poll, defaultPoll)
	}
	return inRange("TTL", c.TTL, minTTL, driver.MaxTTL)
}

// Locker creates lock handles that share a store, a wheel and a watchdog. A process needs one
// locker per store. The methods of a handle return a *[NameError] if [driver.ValidateName]
// rejects its name.
type Locker struct {
	store    driver.Store
	config   Config
	wheel    *wheel.Wheel
	ownWheel bool
	tick     time.Duration // the wheel's
	minTTL   time.Duration // the shortest that the watchdog can renew in time
	watchdog *renewal.Watchdog
	client   driver.Client
	owners   atomic.Int64  // number of the latest owner
	permits  atomic.Uint64 // number of the latest permit

	// closed ends with Close; its Done ends every wait of this locker.
	closed context.Context
	close  context.CancelCauseFunc
	// lastBy is when the last requests end at the latest, once the context of a Shutdown has
	// ended; nil before.
	lastBy atomic.Pointer[time.Time]

	deferral  deferral
	cleanup   cleanup
	confirmed confirmed
	unlocks   activity // releases in progress, of leases and of permits
	announcer announcer
	outcomes  struct { // counts how acquisitions ended
		granted, byRelease, handedOff, refused, failed atomic.Int64
	}
	log     logging.Logger
	outages sync.Map // when an outage was logged last, a time.Time by group of the store

	mu     sync.Mutex
	queues map[queueKey]*queue // guarded by mu; queues that have not ended

	keepers map[queueKey]*placeKeeper // guarded by mu; of locks with idle waiters

	waiters int              // guarded by mu; in all queues
	waiting map[queueKey]int // guarded by mu; waiters per lock, kept only with MaxWaiters

	unreleased UnreleasedError // guarded by mu; what a Shutdown could not release

	// active counts acquisitions, deferred functions until done, and subscriptions that are
	// being closed. It is added to under mu, while not closed or not zero.
	active activity
}

// Store keeps a locker's locks, such as a redisstore.Store; see [driver.Store].
type Store = driver.Store

// New returns a locker on store. It sends no request. Close it when done.
func New(store Store, c Config) (*Locker, error) {
	if store == nil {
		return nil, errors.New("lock: New needs a store, got nil")
	}
	c = c.withDefaults()
	l := &Locker{store: store, config: c, log: logging.New(c.Logger), wheel: c.Wheel, queues: make(map[queueKey]*queue), keepers: make(map[queueKey]*placeKeeper), waiting: make(map[queueKey]int)}
	if l.wheel == nil {
		w, err := wheel.New(wheel.Config{Logger: l.log.Logger})
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

// start completes the construction of a locker whose wheel runs.
func (l *Locker) start() error {
	l.tick = l.wheel.Tick()
	l.minTTL = max(4*l.tick, 10*time.Millisecond)
	if err := l.config.validate(l.minTTL); err != nil {
		return err
	}
	r := l.config.Renewal
	r.Wheel, r.Logger, r.Package = l.wheel, l.log.Logger, packageName
	watchdog, err := renewal.New(l.store, r)
	if err != nil {
		return err
	}
	l.watchdog = watchdog
	l.client = newClient(l.config.Label)
	l.closed, l.close = context.WithCancelCause(context.Background())
	l.deferral.init(l)
	l.cleanup.init(l)
	l.confirmed.init(l)
	l.announcer.init(l)
	return nil
}

// ClientID returns a random UUID, with which the owners of this locker begin.
func (l *Locker) ClientID() string { return l.client.ID }

// Wheel returns [Config.Wheel] or the locker's own wheel, which ends with it. Its
// [wheel.Stats] and [wheel.Lags] are for metrics.
func (l *Locker) Wheel() *wheel.Wheel { return l.wheel }
