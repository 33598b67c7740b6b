package renewal

import (
	"fmt"
	"log/slog"
	"math/bits"
	"runtime/debug"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// Observer receives reports of what a [Watchdog] does. Each of its functions may be nil.
// Each call has a goroutine of its own, so one that blocks delays no renewal, no loss and no
// other report; it keeps its memory, and [Watchdog.Close] waits for it until its context
// ends. A panic in one is logged.
type Observer struct {
	// Batch is called after each request, with the outcomes of its leases.
	Batch func(Batch)
	// Lost is called for every lease that is lost.
	Lost func(*Lease, *LostError)
	// Jump is called when the clocks have diverged.
	Jump func(Jump)
}

// Batch reports one request.
type Batch struct {
	Group string
	// Size is how many leases it had. Each was either Renewed, or unanswered and so
	// Retried later, or Lost by the store's report or a reply that came too late, or had
	// Ended before the reply came.
	Size, Renewed, Retried, Lost, Ended int
	// Sent is when the request was sent, and Took how long it ran.
	Sent time.Time
	Took time.Duration
	// Err is the error of the request as a whole: its timeout, a panic.
	Err error

	// Lag is, for each lease, how long after it was due the request was sent; zero for
	// leases included early.
	Lag []time.Duration
	// Remaining is, for each renewed lease, how much of its time was left when the reply
	// came: the early warning of losses.
	Remaining []time.Duration
}

// Jump reports that clocks which should agree have diverged.
type Jump struct {
	// Slept is how long the machine was suspended.
	Slept time.Duration
	// Stepped is by how much the wall clock was stepped.
	Stepped time.Duration
	// Suspect is how many leases must be confirmed by the store.
	Suspect int
}

// Losses counts losses by [Cause], which is its index.
type Losses [causes]int64

// Total returns the number of losses of all causes.
func (l Losses) Total() int64 {
	var n int64
	for _, c := range l {
		n += c
	}
	return n
}

// Stats holds the present state and the counters of a [Watchdog].
type Stats struct {
	Held     int // leases kept alive now
	Queued   int // of them: due, and waiting to be sent; the backlog
	Suspect  int // of them: not to be trusted until the store confirms them
	InFlight int // requests under way now
	Groups   int // groups with leases recently
	Silent   int // of them: their last request was not answered

	Watched  int64  // leases accepted
	Released int64  // leases that were stopped
	Lost     Losses // leases that were lost

	Due     int64 // leases collected for renewal
	Sent    int64 // leases sent, more than once if need be
	Batches int64 // requests that contained them
	Renewed int64 // leases confirmed by the store
	Retried int64 // leases sent without an answer

	// Sizes counts requests by their number of leases: 1, up to 2, up to 4, and so
	// on, doubling.
	Sizes [17]int64
	// Remaining counts renewals by how much of the lease's time was left when the reply
	// came: less than a tenth of the TTL, less than two tenths, and so on. A renewal on
	// time has six tenths left. Counts in the first tenths are a warning of losses.
	Remaining [10]int64
	// RemainingSum is the sum of these parts of the TTL, each from 0 to 1.
	RemainingSum float64

	// Lags counts leases by how late after they were due they were sent. Leases that were
	// included early count as zero.
	Lags     wheel.Lags
	LastLag  time.Duration // of the lease sent last
	WorstLag time.Duration // the longest of all

	Jumps  int64 // suspends, and steps of the wall clock
	Panics int64 // in the renewer, in hooks, in the observer
}

// Late returns how many renewals were confirmed with less than half of the lease's time
// left.
func (s Stats) Late() int64 {
	var n int64
	for _, c := range s.Remaining[:len(s.Remaining)/2] {
		n += c
	}
	return n
}

// LogValue implements [slog.LogValuer]. It leaves the histograms out.
func (s Stats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int("held", s.Held),
		slog.Int("queued", s.Queued),
		slog.Int("suspect", s.Suspect),
		slog.Int("in_flight", s.InFlight),
		slog.Int("groups", s.Groups),
		slog.Int("silent", s.Silent),
		slog.Int64("watched", s.Watched),
		slog.Int64("released", s.Released),
		slog.Int64("lost", s.Lost.Total()),
		slog.Int64("batches", s.Batches),
		slog.Int64("renewed", s.Renewed),
		slog.Int64("retried", s.Retried),
		slog.Int64("late", s.Late()),
		slog.Duration("worst_lag", s.WorstLag),
		slog.Int64("jumps", s.Jumps),
		slog.Int64("panics", s.Panics),
	)
}

// batch counts a request that is sent.
func (s *Stats) batch(size int) {
	s.Batches++
	s.Sent += int64(size)
	s.Queued -= size
	s.Sizes[bits.Len(uint(size-1))]++
}

// lag counts how late after its due time a lease is sent.
func (s *Stats) lag(d time.Duration) {
	s.Lags.Add(d)
	s.LastLag = max(0, d)
	s.WorstLag = max(s.WorstLag, d)
}

// renewed counts a renewal that came with left of span remaining.
func (s *Stats) renewed(left, span time.Duration) {
	s.Renewed++
	s.Remaining[min(int(10*left/span), 9)]++
	s.RemainingSum += float64(left) / float64(span)
}

// Stats returns the watchdog's present state and counters.
func (w *Watchdog) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(w.clock.now()) // the dispatcher sleeps while no lease is held
	s := w.stats
	s.InFlight, s.Groups = w.inFlight, len(w.groups)
	for _, g := range w.groups {
		if g.silent() {
			s.Silent++
		}
	}
	return s
}

// reportJump logs a jump and reports it to the observer. Neither waits for the other.
func (w *Watchdog) reportJump(j Jump) {
	w.log(func(log *slog.Logger) {
		log.Warn("renewal: the clocks have diverged; leases are not trusted until the store confirms them",
			"slept", j.Slept, "stepped", j.Stepped, "leases", j.Suspect)
	})
	if w.observer.Jump != nil {
		w.call("Observer.Jump", func() { w.observer.Jump(j) })
	}
}

// panicError is a panic in a user's function. The value's text is a method of the user's, which may
// wait, as for a lock that is still held: it is made where the error is read.
type panicError struct {
	what  string
	value any
}

func (e *panicError) Error() string { return fmt.Sprintf("renewal: %s panicked: %v", e.what, e.value) }

// panicked counts a panic in a user's function, and logs it.
func (w *Watchdog) panicked(what string, p any) {
	stack := string(debug.Stack())
	w.mu.Lock()
	w.stats.Panics++
	w.mu.Unlock()
	w.log(func(log *slog.Logger) {
		log.Error("renewal: panic in "+what, "panic", fmt.Sprint(p), "stack", stack)
	})
}

// log calls f with the logger, which may block and panic, in a goroutine of its own.
func (w *Watchdog) log(f func(*slog.Logger)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spawn(func() {
		defer func() { _ = recover() }() // no log is left for it
		f(w.config.Logger)
	})
}
