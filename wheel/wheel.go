package wheel

import (
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
	limit      int64
	executor   Executor
	onReject   func(task func(), err error)
	precise    bool

	// What goroutines and the worker exchange. It is read for every operation and
	// written when the worker sleeps or wakes, so it has cache lines of its own.
	_        [64]byte
	wake     atomic.Int64 // the tick that the worker sleeps until; 0 while it is awake
	roused   atomic.Int64 // when somebody has woken it, since the start
	wanted   atomic.Int64 // the tick by which it was then to be awake, if that was why
	soon     atomic.Bool  // there is something to reclaim by the next tick
	stopping atomic.Bool
	live     atomic.Int64 // pending timeouts, if there is a limit
	alarm    alarm
	_        [64]byte

	// mu guards ring and the content of batch. The worker holds it while it
	// moves timeouts about, never while it runs a task. Stop and Drain, which
	// read what the worker owns, are the only others to take it.
	mu    sync.Mutex
	ring  ring
	batch batch

	counters counters
	warnings warnings

	// since is when, since the start, the worker's last sleep ended or should
	// have. The worker's alone.
	since time.Duration

	// vigil is a tick for which the worker was woken in vain: what was due then had
	// been cancelled before it looked. The worker stays on call for that tick. The
	// next timeout, which is most often for later and cancelled as fast, then need
	// not wake it. The worker's alone.
	vigil timeout.Tick

	// current is the periodic task that the worker runs or hands out; the
	// worker's alone.
	current *periodic

	// leftovers: a task has stopped the wheel, so that the worker has to see to
	// what is left in the lists. The worker's alone.
	leftovers bool

	worker    goroutine     // who runs the worker
	withdrawn chan struct{} // closed when Stop has returned what was pending
	ended     chan struct{} // closed when the worker is gone
}

// New makes a wheel and starts its worker, which sleeps until there is
// something to do.
//
// The error says which field of the config is out of range. Inside a
// testing/synctest bubble the wheel lives in the bubble's time, and has to be
// stopped before the bubble ends.
func New(config Config) (*Wheel, error) {
	c, err := config.check()
	if err != nil {
		return nil, err
	}
	w := &Wheel{
		ticks:     newTicks(time.Now(), c.Tick),
		limit:     c.MaxPending,
		executor:  c.Executor,
		onReject:  c.OnReject,
		precise:   c.Precise,
		alarm:     newAlarm(c.Precise),
		ring:      newRing(c.Buckets),
		warnings:  warnings{log: c.Logger},
		withdrawn: make(chan struct{}),
		ended:     make(chan struct{}),
	}
	w.timers.Engine = adopter{w}
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
func (w *Wheel) Schedule(d time.Duration, task func()) (timeout.Timeout, error) {
	if task == nil {
		panic("wheel: Schedule of a nil task")
	}
	return w.shard().put(w.ticks.after(d), task)
}

// ScheduleAt is [Wheel.Schedule] at an instant, for callers that schedule many
// tasks by one reading of the clock. The instant should carry a monotonic
// reading, as those from [time.Now] do; one in the past means the next tick.
func (w *Wheel) ScheduleAt(at time.Time, task func()) (timeout.Timeout, error) {
	if task == nil {
		panic("wheel: ScheduleAt of a nil task")
	}
	return w.shard().put(w.tickAt(at), task)
}

// tickAt returns the first tick by which an instant has passed, and the next tick
// for an instant in the past. It reads the clock only if the instant may be in the
// past: what is later than the tick that the worker sleeps until is not.
func (w *Wheel) tickAt(at time.Time) timeout.Tick {
	tick := w.ticks.at(at)
	if wake := w.wake.Load(); wake != 0 && int64(tick) >= wake {
		return tick
	}
	return max(tick, w.ticks.now()+1)
}

// needBy sees to it that the worker is awake by a tick.
func (w *Wheel) needBy(by timeout.Tick) {
	if int64(by) < w.wake.Load() {
		w.rouse(by)
	}
}

// reclaimSoon sees to it that the worker looks at what was cancelled within a
// tick. Only the first cancel in a tick has to wake it.
func (w *Wheel) reclaimSoon() {
	if !w.soon.Load() && w.soon.CompareAndSwap(false, true) {
		w.rouse(0)
	}
}

// rouse wakes the worker if it sleeps, for the sake of a tick or, with 0, of
// something else. Of many who want to, one does.
func (w *Wheel) rouse(by timeout.Tick) {
	if w.wake.Swap(0) != 0 {
		w.roused.Store(int64(w.ticks.elapsed()))
		w.wanted.Store(int64(by))
		w.alarm.ring()
	}
}

// reserve takes a place among the pending timeouts. It never takes one too many
// for a moment: that would have others refused who have room.
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

// unreserve gives it back.
func (w *Wheel) unreserve() {
	if w.limit != 0 {
		w.live.Add(-1)
	}
}

// An Unrun is a timeout that was pending when its wheel was stopped or drained.
type Unrun struct {
	Timeout  timeout.Timeout
	Deadline time.Time
	Task     func()
}

// Stop ends the wheel and returns what it has not run, in the order of the
// deadlines. Whatever was scheduled is either run, cancelled, or among these;
// whatever comes later is refused with [ErrStopped].
//
// Stop waits for the worker to end, and so for the task that it is running. It
// does not wait for tasks that an executor has taken on. Called by a task on the
// worker itself it returns at once, and the worker ends after that task. A
// second Stop waits likewise and returns nil.
func (w *Wheel) Stop() []Unrun {
	var left []Unrun
	first := !w.stopping.Swap(true)
	if first {
		w.uncounted()
		for i := range w.shards {
			w.shards[i].inbox.Close()
		}
		left = w.withdraw()
		close(w.withdrawn)
		w.rouse(0)
	}
	if w.worker.isCurrent() {
		w.leftovers = true
		return left
	}
	<-w.ended
	if first { // any other may come here before all is withdrawn
		w.release()
	}
	return left
}

// release lets go of what a wheel without a worker still has in its lists: the
// records in which users have embedded timers must not live as long as the wheel,
// or as one of the others.
func (w *Wheel) release() {
	w.gather()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ring.clear()
}

// withdraw cancels everything that is pending in a wheel that takes on no more.
func (w *Wheel) withdraw() []Unrun {
	var left []Unrun
	for n := range w.nodes {
		tick, _ := n.PendingTick()
		pooled := n.Owner().Pooled
		if pooled && !n.Withdraw(n.Life()) || !pooled && !n.TakeOut() {
			continue
		}
		w.unreserve()
		w.counters.withdrawn.Add(1)
		left = append(left, Unrun{n.Timeout(), w.ticks.time(tick), n.Task()})
		if pooled {
			n.SetTask(nil) // the caller's now, whoever keeps the handle
		}
	}
	sortUnrun(left)
	return left
}

func sortUnrun(u []Unrun) {
	slices.SortStableFunc(u, func(a, b Unrun) int { return a.Deadline.Compare(b.Deadline) })
}

// Drain cancels everything that is pending and returns it, in the order of the
// deadlines; the wheel goes on. A periodic task whose run is under way is among
// it, and does not run again. What is scheduled meanwhile may be left.
//
// It keeps the worker and those who schedule waiting, for about ten milliseconds
// per million timeouts.
func (w *Wheel) Drain() []Unrun {
	type life struct {
		node   *bucket.Node
		number uint64
	}
	var pending []life
	for n := range w.nodes {
		number := n.Life()
		if _, ok := n.PendingTick(); ok {
			pending = append(pending, life{n, number})
		}
	}
	var drained []Unrun
	for _, l := range pending {
		n := l.node
		if n.Owner().Pooled {
			if !n.Withdraw(l.number) {
				continue
			}
		} else if won, _ := n.Disarm(); !won {
			continue
		}
		// It stays in this life until the engine knows of its end.
		tick, _ := n.PendingTick()
		drained = append(drained, Unrun{n.Timeout(), w.ticks.time(tick), n.Task()})
		n.Owner().Engine.Cancelled(&n.Entry, l.number)
	}
	sortUnrun(drained)
	return drained
}

// nodes calls yield for every node that the wheel has, some of them twice, with
// the wheel's locks held.
func (w *Wheel) nodes(yield func(*bucket.Node) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.batch.nodes[:w.batch.filled]
	for _, n := range batch {
		if !yield(n) {
			return
		}
	}
	more := true
	w.ring.all(func(n *bucket.Node) bool {
		more = yield(n)
		return more
	})
	for i := range w.shards {
		if !more {
			return
		}
		w.shards[i].inbox.Arrivals(func(n *bucket.Node) bool {
			more = yield(n)
			return more
		})
	}
}
