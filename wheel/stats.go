package wheel

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Stats holds the counters of a wheel since it was made. They are read one after the
// other while the wheel runs, so they may differ by what happened meanwhile.
type Stats struct {
	Pending   int64  // timeouts that are still to run
	Scheduled uint64 // timeouts that were accepted, and each repetition; moving a pending one is neither
	Fired     uint64 // tasks that were begun or handed to the executor
	Cancelled uint64 // timeouts that were cancelled, or returned by Stop
	Rejected  uint64 // tasks, out of Fired, that the executor refused
	Panics    uint64 // panics, and ends of the goroutine, on the worker: of tasks, Execute and OnReject

	// A deadline that lay in the past counts from when it was set.
	LastLag  time.Duration // from the deadline, a tick, of the latest batch of tasks to its start
	WorstLag time.Duration // the longest of these
	Overruns uint64        // batches of tasks that held the worker for longer than a tick
}

// LogValue implements [slog.LogValuer].
func (s Stats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("pending", s.Pending),
		slog.Uint64("scheduled", s.Scheduled),
		slog.Uint64("fired", s.Fired),
		slog.Uint64("cancelled", s.Cancelled),
		slog.Uint64("rejected", s.Rejected),
		slog.Uint64("panics", s.Panics),
		slog.Duration("last_lag", s.LastLag),
		slog.Duration("worst_lag", s.WorstLag),
		slog.Uint64("overruns", s.Overruns),
	)
}

// counters are the worker's part of the numbers; the inboxes have theirs. Only the worker
// writes them, except withdrawn.
type counters struct {
	fired     atomic.Uint64
	rejected  atomic.Uint64
	panics    atomic.Uint64
	overruns  atomic.Uint64
	lastLag   atomic.Int64
	worstLag  atomic.Int64
	lags      lagCounters
	repeated  atomic.Uint64 // runs of periodic tasks, each scheduled anew
	withdrawn atomic.Uint64 // by Stop
}

// Stats returns the wheel's numbers. It takes up to a few microseconds and never waits for the
// worker.
func (w *Wheel) Stats() Stats {
	c := &w.counters
	s := Stats{
		Rejected: c.rejected.Load(),
		Panics:   c.panics.Load(),
		LastLag:  time.Duration(c.lastLag.Load()),
		WorstLag: time.Duration(c.worstLag.Load()),
		Overruns: c.overruns.Load(),
	}
	// The counters of ended timeouts are read before those of scheduled ones, so that
	// Pending cannot come out too small.
	s.Cancelled = c.withdrawn.Load()
	s.Fired = c.fired.Load()
	s.Scheduled = c.repeated.Load()
	for i := range w.shards {
		scheduled, cancelled := w.shards[i].inbox.Counts()
		s.Scheduled += scheduled
		s.Cancelled += cancelled
	}
	s.Pending = max(0, int64(s.Scheduled-s.Fired-s.Cancelled))
	return s
}

// lag records how late a batch begins. A deadline that was over when it was set counts from
// when the worker was woken.
func (w *Wheel) lag() {
	for _, n := range w.batch.nodes[:w.batch.filled] {
		tick, pending := n.PendingTick()
		if !pending || tick > w.ring.now {
			continue // cancelled or moved meanwhile: its lag has no meaning
		}
		late := w.batch.began - max(w.ticks.span(tick), w.since)
		w.counters.lags.add(max(late, 0))
		w.counters.lastLag.Store(int64(late))
		w.counters.worstLag.Store(max(w.counters.worstLag.Load(), int64(late)))
		if late > backlogTicks*w.Tick() {
			w.warnings.backlog.warn(w.warnings.log,
				"wheel: the worker falls behind; use fewer or shorter tasks, an Executor, or another wheel",
				"lag", late, "tick", w.Tick(), "pending", w.Stats().Pending)
		}
		return
	}
}

// held records for how long a batch, if there was one, occupied the worker.
func (w *Wheel) held() {
	began, now := w.batch.began, w.ticks.elapsed()
	w.batch.began = now
	if w.batch.filled == 0 || now-began <= w.Tick() {
		return
	}
	w.counters.overruns.Add(1)
	w.warnings.overrun.warn(w.warnings.log,
		"wheel: tasks, or the Executor as it took them, held the worker for longer than a tick; tasks that block need an Executor",
		"held", now-began, "tick", w.Tick())
}
