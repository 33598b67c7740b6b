package wheel

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// A Wheel runs tasks after delays. Its methods are safe for concurrent use,
// from inside tasks too. Wheels are made by [New] and end with [Wheel.Stop].
type Wheel struct {
	// Set by New, constant from then on.
	ticks      ticks
	shards     []shard
	shardShift int
	timers     timeout.Owner // of the timers that users embed
	inline     timeout.Owner // of those that neither the executor nor the limit refuses
	funcs      timeout.Owner // of the timeouts that their own tasks receive
	limit      int64
	executor   Executor
	foreign    bool // the executor is a user's
	onReject   func(task func(), err error)
	precise    bool

	// Shared by goroutines and the worker. It is read for every operation and written
	// when the worker sleeps or wakes, so it has cache lines of its own.
	_        [64]byte
	wake     atomic.Int64 // the tick that the worker sleeps until; 0 while it is awake
	wokenAt  atomic.Int64 // when a goroutine last woke it, since the start
	wanted   atomic.Int64 // the tick that this wake-up was for; 0 if it was for something else
	soon     atomic.Bool  // there is something to reclaim by the next tick
	stopping atomic.Bool
	// needed is the tick by which the worker has to look into the inboxes for a timer that
	// was armed for an earlier deadline while it was in one of them: not necessarily that
	// of the goroutine which armed it.
	needed atomic.Int64
	live   atomic.Int64 // pending timeouts that the limit counts, if there is one
	alarm  alarm
	_      [64]byte

	// mu guards ring and the content of batch. The worker holds it while it moves
	// timeouts between lists, never while it runs a task. Only Stop and Drain, which read
	// the worker's lists, also take it.
	mu    sync.Mutex
	ring  ring
	batch batch

	counters counters
	warnings warnings

	takenMu sync.Mutex
	taken   Lags // what TakeLags has returned so far; guarded by takenMu

	// since is when, since the start, the worker's last sleep ended or should have ended.
	// Only the worker uses it.
	since time.Duration

	// standby is a tick for which the worker was woken in vain: the timeout due then was
	// cancelled before the worker looked. The worker stays on call for that tick, so the
	// next timeout, usually a later one that is cancelled as fast, need not wake it: a lone
	// lock and unlock costs 75 µs of CPU time instead of 110. Only the worker uses it.
	standby timeout.Tick

	// current is the run that the worker is passing to an executor, or that of a periodic
	// task on the worker. It is left behind by a panic or runtime.Goexit. Only the worker
	// uses it.
	current revocable

	worker    goroutine     // the goroutine that runs the worker
	withdrawn chan struct{} // closed when Stop has returned what was pending
	ended     chan struct{} // closed when the worker is gone
}

// New makes a wheel and starts its worker, which sleeps until there is work. A wheel that is
// dropped without [Wheel.Stop] keeps its goroutine and its memory.
//
// The error names the field of the config that is out of range. Inside a testing/synctest
// bubble the wheel uses the bubble's time, and has to be stopped before the bubble ends.
func New(config Config) (*Wheel, error) {
	c, err := config.check()
	if err != nil {
		return nil, err
	}
	w := &Wheel{
		ticks:     newTicks(time.Now(), c.Tick),
		limit:     c.MaxPending,
		executor:  c.Executor,
		foreign:   foreign(c.Executor),
		onReject:  c.OnReject,
		precise:   c.Precise,
		alarm:     newAlarm(c.Precise),
		ring:      newRing(c.Buckets),
		warnings:  warnings{log: c.Logger},
		withdrawn: make(chan struct{}),
		ended:     make(chan struct{}),
	}
	limited := w.limit != 0
	w.timers = timeout.Owner{Engine: adopter{w}, Limited: limited}
	w.inline = timeout.Owner{Engine: adopter{w}}
	w.funcs = timeout.Owner{Engine: adopter{w}, Limited: limited, Final: true}
	w.shards = newShards(w)
	w.shardShift = 64 - bits.TrailingZeros(uint(len(w.shards)))
	w.counted()
	go w.work()
	return w, nil
}

// Tick returns the wheel's tick.
func (w *Wheel) Tick() time.Duration { return time.Duration(w.ticks.tick) }

// Schedule runs the task once, d from now, rounded up to a tick; d at or below
// zero means at the next tick. The task is never run early.
//
// The returned handle cancels or moves it. Schedule fails with [ErrStopped] or
// [ErrFull], and panics if the task is nil.
//
// The memory of timeouts comes in blocks of 8 KiB, for 146 each. A block is freed when none
// of its timeouts is pending and no handle of them is kept: a handle of 16 B, or the last
// pending timeout of a burst, may hold 8 KiB. The wheel keeps 2 MiB of free blocks at most.
func (w *Wheel) Schedule(d time.Duration, task func()) (Timeout, error) {
	if task == nil {
		panic("wheel: Schedule of a nil task")
	}
	return w.shard().put(w.ticks.after(d), task)
}

// ScheduleAt is [Wheel.Schedule] at an instant, for callers that schedule many tasks with
// one reading of the clock. The instant should carry a monotonic reading, as those from
// [time.Now] do; one in the past means the next tick.
func (w *Wheel) ScheduleAt(at time.Time, task func()) (Timeout, error) {
	if task == nil {
		panic("wheel: ScheduleAt of a nil task")
	}
	return w.shard().put(w.tickAt(at), task)
}

// tickAt returns the first tick at or after an instant, and the next tick for an instant
// in the past. It reads the clock only if the instant may be in the past: a tick at or
// after the one that the worker sleeps until is not.
func (w *Wheel) tickAt(at time.Time) timeout.Tick {
	tick := w.ticks.at(at)
	if wake := w.wake.Load(); wake != 0 && int64(tick) >= wake {
		return tick
	}
	return max(tick, w.ticks.now()+1)
}

// needBy wakes the worker if it sleeps beyond a tick. That is a load, 1.6 ns; a non-blocking
// send for each timeout would be 3.8 ns and a wake-up.
func (w *Wheel) needBy(by timeout.Tick) {
	if int64(by) < w.wake.Load() {
		w.wakeWorker(by)
	}
}

// need makes the worker look into all inboxes by a tick, for a timer that is in one of
// them.
func (w *Wheel) need(by timeout.Tick) {
	for {
		old := w.needed.Load()
		if int64(by) >= old || w.needed.CompareAndSwap(old, int64(by)) {
			break
		}
	}
	w.needBy(by)
}

// reclaimSoon makes the worker reclaim cancelled timeouts within a tick. Only the first
// cancel in a tick has to wake it.
func (w *Wheel) reclaimSoon() {
	if !w.soon.Load() && w.soon.CompareAndSwap(false, true) {
		w.wakeWorker(0)
	}
}

// wakeWorker wakes the worker if it sleeps. by is the tick that it is needed for, 0 for
// other reasons. Of several concurrent callers one rings the alarm.
func (w *Wheel) wakeWorker(by timeout.Tick) {
	if w.wake.Swap(0) != 0 {
		w.wokenAt.Store(int64(w.ticks.elapsed()))
		w.wanted.Store(int64(by))
		w.alarm.ring()
	}
}

// reserve takes a place among the pending timeouts. It never exceeds the limit, not even
// briefly: otherwise another caller would be refused although there is room.
func (w *Wheel) reserve() bool {
	for {
		live := w.live.Load()
		if live >= w.limit {
			return false
		}
		if w.live.CompareAndSwap(live, live+1) {
			return true
		}
	}
}

// full returns why there is no place: a wheel that is being stopped will never have one.
func (w *Wheel) full() error {
	if w.stopping.Load() {
		return ErrStopped
	}
	return ErrFull
}

// unreserve gives a place back.
func (w *Wheel) unreserve() {
	if w.limit != 0 {
		w.live.Add(-1)
	}
}

// unreserveTimer is unreserve for the place of a timer, if it has one. It can then take
// another one.
func (w *Wheel) unreserveTimer(n *bucket.Node) {
	if n.Owner() == &w.inline {
		return
	}
	w.unreserve()
	n.Reserved()
}

// An Unrun is a timeout that was pending when its wheel was stopped or drained.
type Unrun struct {
	Timeout  Timeout
	Deadline time.Time
	Task     func()
}

// Stop ends the wheel and returns the timeouts that it has not run, in the order of their
// deadlines. Every timeout scheduled before was either run, cancelled, or is among these;
// later calls fail with [ErrStopped].
//
// Stop waits for the worker to end, and so for the task that it is running. It does not
// wait for tasks that an executor has accepted. Called by a task on the worker itself it
// returns at once, and the worker ends after that task. A second Stop waits likewise and
// returns nil.
func (w *Wheel) Stop() []Unrun {
	left, _ := w.Shutdown(context.Background())
	return left
}

// Shutdown is [Wheel.Stop] with a limit: it waits for the running task as long as ctx lives. If
// ctx ends first, the wheel is stopped all the same, the worker ends after that task, and the
// error wraps ctx's cause. Without a running task there is no error, even if ctx has ended. The
// timeouts are returned in any case.
func (w *Wheel) Shutdown(ctx context.Context) ([]Unrun, error) {
	var left []Unrun
	if !w.stopping.Swap(true) {
		w.uncounted()
		for i := range w.shards {
			w.shards[i].inbox.Close()
		}
		left = w.withdraw()
		close(w.withdrawn)
		w.wakeWorker(0)
	}
	if w.worker.isCurrent() {
		return left, nil
	}
	select {
	case <-w.ended:
		return left, nil
	case <-ctx.Done():
	}
	if w.runs() {
		return left, fmt.Errorf("wheel: a task still runs: %w", context.Cause(ctx))
	}
	<-w.ended // the worker is about to end
	return left, nil
}

// runs reports whether the worker of a wheel that is being stopped has tasks to run. If not,
// it gets none any more.
func (w *Wheel) runs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.batch.filled > 0
}

// release empties the lists of a wheel without a worker. The records in which users have
// embedded timers must not live as long as the wheel, or as long as each other.
func (w *Wheel) release() {
	w.gather()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ring.clear()
}

// withdraw cancels everything that is pending in a wheel that is closed to new timeouts.
func (w *Wheel) withdraw() []Unrun {
	var left []Unrun
	w.each(func(n *bucket.Node) {
		pooled := n.Owner().Pooled
		var tick timeout.Tick
		var won bool
		if pooled {
			tick, won = n.Withdraw(n.Life())
		} else {
			tick, won = n.TakeOut()
		}
		if !won {
			return
		}
		w.unreserveTimer(n)
		w.counters.withdrawn.Add(1)
		left = append(left, Unrun{n.Timeout(), w.ticks.time(tick), n.Task()})
		if pooled {
			n.SetTask(nil) // it belongs to the caller now, not to the handle
		}
	})
	sortUnrun(left)
	return left
}

func sortUnrun(u []Unrun) {
	slices.SortStableFunc(u, func(a, b Unrun) int { return a.Deadline.Compare(b.Deadline) })
}

// Drain cancels everything that is pending and returns it, in the order of the deadlines;
// the wheel goes on. A periodic task whose run is under way is included, and does not run
// again. Timeouts scheduled meanwhile may be left pending. Timers of [Timer.InitOnWorker],
// such as the ends of leases, are left in any case.
//
// Drain blocks the worker and scheduling goroutines for about 0.3 s per million timeouts.
func (w *Wheel) Drain() []Unrun {
	type life struct {
		node   *bucket.Node
		number uint64
	}
	var ended []life
	var drained []Unrun
	w.each(func(n *bucket.Node) {
		if n.Owner() == &w.inline {
			return
		}
		tick, won, _ := n.Disarm()
		if !won {
			return
		}
		ended = append(ended, life{n, n.Life()})
		drained = append(drained, Unrun{n.Timeout(), w.ticks.time(tick), n.Task()})
	})
	// The engine is called without locks held. By now the node may serve another timeout;
	// the number of the life distinguishes the two.
	for _, l := range ended {
		l.node.Owner().Engine.Cancelled(&l.node.Entry, l.number)
	}
	sortUnrun(drained)
	return drained
}

// each calls visit for every node that the wheel has, some of them twice, with the wheel's
// locks held. A node that visit withdraws is not used for another timeout before visit
// returns, so its task can be read there and nowhere later.
func (w *Wheel) each(visit func(*bucket.Node)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.batch.nodes[:w.batch.filled] {
		visit(n)
	}
	w.ring.all(visit)
	for i := range w.shards {
		for n := range w.shards[i].inbox.Arrivals {
			visit(n)
		}
	}
}
