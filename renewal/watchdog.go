package renewal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// The defaults of [Config].
const (
	DefaultBatchSize      = 96
	DefaultParallel       = 16
	DefaultGroupParallel  = 4
	DefaultRequestTimeout = 2 * time.Second
)

const (
	// minTTL leaves some time after the 2 ms that every lease is shortened by.
	minTTL = 10 * time.Millisecond
	// minTicks is the shortest TTL in ticks of the wheel: the renewal is due after a third
	// of it and may leave a tick late, and the lease is given up a tick early.
	minTicks = 4
	// maxTTL keeps the arithmetic far from its limits.
	maxTTL = 10 * 365 * 24 * time.Hour
	// rounds is how often the requests that a group may have in flight are filled up for
	// one wake-up.
	rounds = 3
	// repeatedParallel is the most requests in flight to one group with leases whose last
	// renewal was not answered, and the same for single ones that were not answered again.
	repeatedParallel = 4
	// stride is how many leases are handled before mu is unlocked briefly.
	stride = 256
	// groupIdle is how long a group without due leases is kept.
	groupIdle = time.Minute
)

// Config configures a [Watchdog]. Its zero value is ready to use.
type Config struct {
	// Wheel runs the timers of the leases' ends. Its tasks must be short, and it must not
	// be stopped before the watchdog is closed. Default: a wheel of its own with a tick
	// of 10 ms.
	Wheel *wheel.Wheel

	// BatchSize is the most leases in one request. Default: 96, which a Redis server
	// handles in less than 0.3 ms, even if none of them is in its processor's caches.
	BatchSize int
	// GroupParallel is the most requests in flight to one group. Four more may be sent with
	// leases whose last renewal was not answered, and four with single leases that were not
	// answered again. Default: 4.
	GroupParallel int
	// Parallel is the most requests in flight to all groups together, apart from one that
	// each group may always have, and from those with leases whose last renewal was not
	// answered. Default: 16.
	Parallel int
	// RequestTimeout bounds one request. The sixth part of the shortest TTL in it
	// bounds it too, so that it can be sent again in time. Default: 2 s.
	RequestTimeout time.Duration

	// Package is the prefix of the texts of the errors that leases end with. A package
	// that offers the leases as its own sets it. Default: "renewal".
	Package string

	// Observer receives reports of what happens. Default: none.
	Observer *Observer
	// Logger receives panics in users' functions, and suspends of the machine and steps of
	// its clock, in the background; it may block and panic. Default: nothing is logged.
	Logger *slog.Logger
}

// withDefaults returns c with its zero fields filled in, apart from Wheel.
func (c Config) withDefaults() Config {
	c.BatchSize = cmp.Or(c.BatchSize, DefaultBatchSize)
	c.GroupParallel = cmp.Or(c.GroupParallel, DefaultGroupParallel)
	c.Parallel = cmp.Or(c.Parallel, DefaultParallel)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, DefaultRequestTimeout)
	c.Package = cmp.Or(c.Package, packageName)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate returns an error for an invalid field of c, whose zero fields are filled in.
func (c Config) validate() error {
	switch {
	case c.BatchSize < 1 || c.BatchSize > 1<<16:
		return fmt.Errorf("renewal: BatchSize %d is outside 1 … 65536; 0 means %d", c.BatchSize, DefaultBatchSize)
	case c.GroupParallel < 1 || c.GroupParallel > 1<<16:
		return fmt.Errorf("renewal: GroupParallel %d is outside 1 … 65536; 0 means %d", c.GroupParallel, DefaultGroupParallel)
	case c.Parallel < 1:
		return fmt.Errorf("renewal: Parallel %d is negative; 0 means %d", c.Parallel, DefaultParallel)
	case c.RequestTimeout < 0:
		return fmt.Errorf("renewal: RequestTimeout %v is negative; 0 means %v", c.RequestTimeout, DefaultRequestTimeout)
	}
	return nil
}

// Watchdog keeps leases alive. One serves a process and a store, for any number of
// leases, with a fixed number of goroutines and one for each request in flight. Its
// methods are safe for concurrent use.
type Watchdog struct {
	renewer  Renewer
	config   Config
	observer Observer
	wheel    *wheel.Wheel
	ownWheel bool
	clock    *clock
	released error // the error of stopped leases; see [ErrReleased]

	// wake wakes the dispatcher.
	wake chan struct{}
	// requests is the parent of all requests' contexts.
	requests       context.Context
	cancelRequests context.CancelFunc
	// dispatcher is closed when the dispatcher has returned.
	dispatcher chan struct{}

	// due and names belong to the dispatcher: leases on their way from the calendar to
	// their groups, and those groups' names.
	due   []*Lease
	names []string

	// mu: see the package's ground rules.
	mu sync.Mutex

	// Leases are in the calendar while they wait for their due time. They are in parked
	// while they are collected, queued or in flight, or if they are never renewed. They
	// are in suspects from a jump of the clocks until they have been examined.
	calendar calendar
	parked   *list
	suspects []*list
	// alarmed is when the last [Alarm] came; each has an instant of its own. What the store
	// confirmed before is to be confirmed again.
	alarmed instant

	groups map[string]*group
	// ready has the lanes with leases queued; begin is the lane to begin with.
	ready    []*lane
	begin    uint // which may overflow
	inFlight int  // requests
	repeated int  // of them: those with leases whose last renewal was not answered
	stale    int  // entries of ended leases in queues

	// wakeAt is when the dispatcher wakes without a kick.
	wakeAt instant
	// watched is how many leases had been watched at the dispatcher's last step. If there
	// were more since, more are likely to come, and the dispatcher keeps checking the
	// clocks, so that those need not wake it.
	watched int64
	// forgetAt is when idle groups are next dropped.
	forgetAt instant
	rng      *rand.Rand

	// wheelProbe is a timer that is pending as long as the wheel runs; wheelStopped is
	// set when it is found not to be.
	wheelProbe   wheel.Timer
	wheelStopped bool

	draining bool // no leases are accepted
	quit     bool // the dispatcher is to return
	closing  sync.Once
	// empty is made for goroutines that wait until no lease is held.
	empty chan struct{}
	// running counts the goroutines that send requests and run hooks, and the losses that
	// are being notified; quiet is made for goroutines that wait until there are none.
	running int
	quiet   chan struct{}

	stats Stats

	disarm func() // of an [Alarm]; nil: none
}

// New returns a watchdog that renews through r. Close it when done.
func New(r Renewer, c Config) (*Watchdog, error) {
	w, err := assemble(r, c, new(clock))
	if err != nil {
		return nil, err
	}
	if a, ok := r.(Alarm); ok {
		w.disarm = a.OnLoss(w.verify)
	}
	go w.run()
	return w, nil
}

// assemble makes a watchdog whose dispatcher does not run yet.
func assemble(r Renewer, c Config, k *clock) (*Watchdog, error) {
	if r == nil {
		return nil, errors.New("renewal: New needs a renewer, got nil")
	}
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	w := &Watchdog{
		renewer:    r,
		config:     c,
		wheel:      c.Wheel,
		clock:      k,
		released:   releasedBy(c.Package),
		wake:       make(chan struct{}, 1),
		dispatcher: make(chan struct{}),
		due:        make([]*Lease, 0, stride),
		names:      make([]string, 0, stride),
		groups:     make(map[string]*group),
		parked:     new(list),
		alarmed:    -never,
		rng:        rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
	if w.wheel == nil {
		own, err := wheel.New(wheel.Config{Logger: c.Logger})
		if err != nil {
			return nil, err
		}
		w.wheel, w.ownWheel = own, true
	}
	if c.Observer != nil {
		w.observer = *c.Observer
	}
	w.clock.start()
	w.calendar.ring = new([slots]list)
	w.calendar.width = instant(w.wheel.Tick())
	w.wheelProbe.InitOnWorker(w.wheel, func() {})
	if _, err := w.wheelProbe.Arm(math.MaxInt64); err != nil {
		return nil, fmt.Errorf("renewal: New needs a wheel that runs: %w", err)
	}
	w.requests, w.cancelRequests = context.WithCancel(context.Background())
	return w, nil
}

// random returns a number in [0, 1). The caller holds mu.
func (w *Watchdog) random() float64 { return w.rng.Float64() }

// Watch keeps the lease that s specifies alive, until [Lease.Stop] or its loss.
//
// It returns an error for an invalid spec, [ErrClosed] from a watchdog that accepts no
// leases any more, a *[LostError] for a lease whose time or context is over already, and
// [wheel.ErrStopped] if the wheel was stopped.
func (w *Watchdog) Watch(s Spec) (*Lease, error) {
	l, err := w.lease(&s, time.Now())
	if err != nil {
		return nil, err
	}
	if err := w.admit(l, &s); err != nil {
		return nil, err
	}
	w.follow(s.Context, l)
	return l, nil
}

// lease returns a lease that is not watched yet.
func (w *Watchdog) lease(s *Spec, now time.Time) (*Lease, error) {
	if err := s.validate(w.wheel.Tick(), now); err != nil {
		return nil, err
	}
	if s.Context != nil && s.Context.Err() != nil {
		return nil, w.lost(s.Key, ContextEnded, context.Cause(s.Context))
	}
	s.First = cmp.Or(s.First, s.TTL)
	l := &Lease{watchdog: w, key: s.Key, owner: s.Owner, ref: s.Ref, ttl: s.TTL, span: min(s.First, s.TTL), fixed: s.Fixed, parent: s.Context}
	l.deadline.InitOnWorker(w.wheel, l.expire)
	return l, nil
}

// admit accepts a lease that the store has granted.
func (w *Watchdog) admit(l *Lease, s *Spec) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return ErrClosed
	}
	w.checkClocks()
	granted := w.clock.instant(s.Granted)
	l.until.Store(int64(granted.add(w.validity(s.First))))
	// Leases that were granted at the same time are spread from the first renewal on.
	// Leases that are released soon are not renewed before.
	first := interval(s.First) / 4
	first += time.Duration(w.random() * float64(interval(s.First)-first))
	if granted <= w.alarmed {
		first = 0
	}
	return w.take(l, s, granted, granted.add(first))
}

// take watches a lease whose time runs: its holder has it since granted, and it is to be
// renewed when due. The caller holds mu, and has checked the clocks.
func (w *Watchdog) take(l *Lease, s *Spec, granted, due instant) error {
	l.generation.Store(w.clock.generation.Load())
	if s.MaxHold > 0 || s.Alive != nil || s.Heartbeat > 0 || s.OnLost != nil {
		r := &rules{holdEnd: never, heartbeat: s.Heartbeat, alive: s.Alive, onLost: s.OnLost, asked: never}
		if s.MaxHold > 0 {
			r.holdEnd = granted.add(s.MaxHold)
		}
		r.beat.Store(int64(w.clock.awake()))
		l.rules.Store(r)
	}
	at, cause := l.ends()
	if at <= w.clock.now() {
		return w.lost(l.key, cmp.Or(cause, Expired), nil)
	}
	if _, err := l.deadline.ArmAt(w.clock.time(at)); err != nil {
		return fmt.Errorf("renewal: lease %q: %w", l.key, err)
	}
	w.held()
	w.stats.Watched++
	if l.fixed {
		w.parked.push(l)
		return nil
	}
	l.due = due
	w.wait(l)
	return nil
}

// held counts an accepted lease. The caller holds mu.
func (w *Watchdog) held() {
	if w.stats.Held++; w.stats.Held == 1 {
		w.calendar.skip(w.clock.now())
	}
	if w.stats.Held == 1 && w.clock.offsets != nil && w.clock.now().add(w.clock.checkEvery) < w.wakeAt {
		w.kick() // there is a lease to check the clocks for now
	}
}

// wait makes the lease wait for its due time. The caller holds mu.
func (w *Watchdog) wait(l *Lease) {
	l.phase = waiting
	if slot := w.calendar.put(l); instant(slot)*w.calendar.width < w.wakeAt {
		w.kick()
	}
}

// follow ends the lease when ctx ends.
func (w *Watchdog) follow(ctx context.Context, l *Lease) {
	if ctx == nil || ctx.Done() == nil {
		return
	}
	unhook := context.AfterFunc(ctx, func() { l.Lose(ContextEnded, context.Cause(ctx)) })
	w.mu.Lock()
	ended := l.ended.Load() != nil
	if !ended {
		l.ruled().unhook = unhook
	}
	w.mu.Unlock()
	if ended {
		unhook()
	}
}

// lost returns the error for a lease that is lost.
func (w *Watchdog) lost(key string, cause Cause, err error) *LostError {
	return &LostError{Package: w.config.Package, Key: key, Cause: cause, Err: err}
}

// lose ends a lease as lost, and returns false if it had ended already. The caller holds
// mu, and notifies the holder after unlocking it, which [Watchdog.Close] waits for.
func (w *Watchdog) lose(l *Lease, cause Cause, err error) bool {
	lost := w.end(l, w.lost(l.key, cause, err))
	if lost {
		w.stats.Lost[cause]++
		w.running++
	}
	return lost
}

// end ends a lease, and returns false if it had ended already. The caller holds mu, and
// notifies the holder after unlocking it.
func (w *Watchdog) end(l *Lease, how *LostError) bool {
	if l.ended.Load() != nil {
		return false
	}
	l.ended.Store(how)
	l.unlink()
	l.deadline.Cancel()
	if how == released {
		w.stats.Released++
	}
	if !l.trusted() {
		w.stats.Suspect--
	}
	if l.phase == queued {
		w.stats.Queued--
		w.leave()
	}
	if w.stats.Held--; w.stats.Held == 0 && w.empty != nil {
		close(w.empty)
		w.empty = nil
	}
	return true
}

// leave records that a lease has ended whose entry is still in a queue. The caller holds
// mu.
func (w *Watchdog) leave() {
	if w.stale++; w.stale < stride || w.stale < w.stats.Queued {
		return
	}
	for _, n := range w.ready {
		n.prune()
	}
	w.stale = 0
}

// expire is the task of a lease's timer: it runs on the wheel's worker.
func (l *Lease) expire() {
	w := l.watchdog
	w.mu.Lock()
	lost := w.judge(l, w.clock.now())
	w.mu.Unlock()
	if lost {
		l.notify()
	}
}

// judge ends the lease as lost if its time is over, or the wheel was stopped, and reports
// whether it did. Otherwise it arms the lease's timer for the end of its time. The caller
// holds mu.
func (w *Watchdog) judge(l *Lease, now instant) (lost bool) {
	if l.ended.Load() != nil {
		return false
	}
	at, cause := l.ends()
	switch {
	case now >= at:
		cause = cmp.Or(cause, l.overdue())
		return w.lose(l, cause, l.why(cause))
	case w.wheelStopped: // which may not have taken this timer out yet
		return w.lose(l, Closed, wheel.ErrStopped)
	}
	if _, err := l.deadline.ArmAt(w.clock.time(at)); err != nil {
		return w.lose(l, Closed, err) // without a timer the end of its time would go unnoticed
	}
	return false
}
