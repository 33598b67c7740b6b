package wheel

import (
	"runtime/debug"
	"time"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// batchSize is how many tasks the worker runs between two looks at the clock.
const batchSize = 64

// batch holds the tasks that the worker is about to run. Its nodes are in no list, but
// pending until they run: they can still be cancelled and moved.
//
// nodes and filled are written with the wheel's mu held; only the worker uses the rest.
type batch struct {
	nodes  [batchSize]*bucket.Node
	filled int
	next   int           // the first that has not been run
	began  time.Duration // since the wheel's start

	// The nodes that have had their turn and are still with the worker: those from slabs,
	// and timers. Ended ones are released, the others go to their new lists.
	pooled, timers []*bucket.Node
}

// work is the worker: it empties the inboxes, makes due what is due, runs it, and sleeps
// until there is more.
func (w *Wheel) work() {
	clean := false
	defer func() {
		if clean {
			<-w.withdrawn
			w.release()
			close(w.ended)
			return
		}
		// A task has ended the goroutine with runtime.Goexit. The worker continues on
		// another goroutine, with the next task.
		w.exited()
		go w.work()
	}()
	w.alarm.open()
	w.worker.begin()
	w.run() // the previous goroutine may have left part of it
	for !w.stopping.Load() {
		w.gather()
		w.run()
		w.sleep()
	}
	clean = true
}

// gather empties the inboxes and advances the ring to this tick.
//
// It reads the clock before it looks into the inboxes. Everything due by then was put
// there before, so it becomes due together and in order, however long the emptying takes.
func (w *Wheel) gather() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.soon.Store(false)
	w.needed.Store(int64(bucket.Never)) // first: the inboxes are emptied one after the other
	now := w.ticks.now()
	var buf [batchSize]*bucket.Node
	for i := range w.shards {
		in := &w.shards[i].inbox
		in.Detach()
		in.Entered(w.replace)
		for more := true; more; {
			k := in.Take(buf[:])
			for _, n := range buf[:k] {
				w.ring.link(n)
			}
			more = k == len(buf)
		}
		for k := in.TakeChanged(buf[:]); k > 0; k = in.TakeChanged(buf[:]) {
			w.settle(in, buf[:k])
		}
	}
	w.ring.advance(now)
}

// settle handles nodes that were moved or cancelled while they were with the worker. A
// node that is in no list by now has been handled already.
func (w *Wheel) settle(in *bucket.Inbox, changed []*bucket.Node) {
	unlinked := changed[:0]
	for _, n := range changed {
		if n.List() != 0 && !w.ring.finds(n) {
			w.ring.unlink(n)
			unlinked = append(unlinked, n)
		}
	}
	for _, n := range in.Drop(unlinked) {
		w.ring.link(n)
	}
}

// run runs the due tasks.
func (w *Wheel) run() {
	for {
		w.finishBatch()
		w.held()
		if !w.fill() {
			return
		}
		w.lag()
	}
}

// fill clears away the last batch and takes the next one from the ring.
func (w *Wheel) fill() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.batch
	w.drop(b.pooled)
	for _, n := range b.timers {
		if tick, pending := n.PendingTick(); pending && tick <= w.ring.now && !n.Busy() {
			w.ring.overdue.add(n, tick)
		} else {
			w.place(n)
		}
	}
	clear(b.nodes[:b.filled])
	clear(b.pooled)
	clear(b.timers)
	b.pooled, b.timers = b.pooled[:0], b.timers[:0]
	b.filled, b.next = 0, 0
	if w.stopping.Load() {
		return false
	}
	for b.filled < batchSize {
		n := w.ring.next()
		if n == nil {
			break
		}
		b.nodes[b.filled] = n
		b.filled++
		if p, ok := n.Owner().Engine.(*periodic); ok && p.catchesUp(w.ring.now) {
			break // its next run may come before the others
		}
	}
	return b.filled > 0
}

// drop returns nodes to their inboxes, those of one inbox together, and links those that are
// pending.
func (w *Wheel) drop(nodes []*bucket.Node) {
	for len(nodes) > 0 {
		s := shardOf(nodes[0])
		k := 1
		for k < len(nodes) && shardOf(nodes[k]) == s {
			k++
		}
		for _, n := range s.inbox.Drop(nodes[:k]) {
			w.ring.link(n)
		}
		nodes = nodes[k:]
	}
}

// shardOf returns the shard that a node from a slab belongs to.
func shardOf(n *bucket.Node) *shard { return n.Owner().Engine.(*shard) }

// finishBatch runs what is left of the batch.
func (w *Wheel) finishBatch() {
	for p := w.runBatch(); p != nil; p = w.runBatch() {
		w.panicked(p)
	}
}

// runBatch runs the batch, or continues it. It returns nil at the end of the batch, and a
// panic after a task that panicked. It does not return after runtime.Goexit: this, and not
// the recovered value, distinguishes it from a panic(nil) with GODEBUG=panicnil=1.
func (w *Wheel) runBatch() (failed *recovered) {
	done := false
	defer func() {
		if !done {
			failed = &recovered{recover(), debug.Stack()}
		}
	}()
	if r := w.current; r != nil { // its task or the executor did not return
		w.current = nil
		w.revoke(r, errInterrupted)
	}
	b := &w.batch
	for b.next < b.filled {
		n := b.nodes[b.next]
		b.next++
		if n.Owner().Pooled {
			w.runPooled(n)
		} else if p, ok := n.Owner().Engine.(*periodic); ok {
			b.timers = append(b.timers, n)
			p.expire()
		} else {
			w.runTimer(n)
		}
	}
	done = true
	return nil
}

// runPooled runs the task of a node from a slab unless it was cancelled or moved.
func (w *Wheel) runPooled(n *bucket.Node) {
	w.batch.pooled = append(w.batch.pooled, n)
	if !n.Expire(w.ring.now) {
		return
	}
	task := n.Task()
	n.SetTask(nil)
	w.fired(n)
	w.execute(task)
}

// runTimer is runPooled for a timer, which may be armed again as soon as it is claimed.
func (w *Wheel) runTimer(n *bucket.Node) {
	won, holds := n.Claim(w.ring.now)
	if holds {
		w.batch.timers = append(w.batch.timers, n)
	}
	if !won {
		return
	}
	w.fired(n)
	if n.Owner() == &w.inline {
		n.Task()()
		return
	}
	w.execute(n.Task())
}

// execute runs a task that has just expired, on the executor if there is one.
func (w *Wheel) execute(task func()) {
	switch {
	case w.executor == nil:
		task()
	case w.foreign:
		d := &dispatched{task: task}
		w.dispatch(d, d.run)
	default:
		if err := w.executor.Execute(task); err != nil {
			w.rejected(task, err)
		}
	}
}

// fired counts a task as fired before it runs. As wherever a timeout ends, its place is free before
// [Stats] has it ended: with nothing pending none is refused.
func (w *Wheel) fired(n *bucket.Node) {
	w.unreserveTimer(n)
	w.counters.fired.Add(1)
}

// sleep returns when the worker has work: a deadline has come, a timeout with an earlier
// one has arrived, a tick has passed since a cancel, or the wheel is being stopped.
//
// It first publishes until when it will sleep and then looks at the arrivals. Other
// goroutines first add their arrival and then read until when the worker sleeps. In every
// interleaving at least one side sees the other.
func (w *Wheel) sleep() {
	until := w.next()
	reclaiming := false
	for {
		w.wake.Store(int64(until))
		if w.soon.Load() && !reclaiming {
			until, reclaiming = min(until, w.ticks.now()+1), true
			continue
		}
		if w.stopping.Load() || w.arrivedBefore(until) {
			break
		}
		d := forever
		if until != bucket.Never {
			if d = w.ticks.span(until) - w.ticks.elapsed(); d <= 0 {
				break
			}
		}
		w.alarm.wait(d)
		w.woken(until)
	}
	w.wake.Store(0)
}

// next returns the tick until which the worker has no work.
func (w *Wheel) next() timeout.Tick {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := w.ring.earliest()
	if by := timeout.Tick(w.wanted.Swap(0)); by != 0 && by < until {
		w.standby = by
	}
	if w.standby > w.ring.now {
		until = min(until, w.standby)
	}
	return until
}

// woken records when the worker should have woken from a sleep until a tick: at that
// tick, or when a goroutine woke it. A timeout that arrived later but was due before does
// not count as the worker's lag.
func (w *Wheel) woken(until timeout.Tick) {
	at := w.ticks.elapsed()
	if w.wake.Load() == 0 {
		at = time.Duration(w.wokenAt.Load())
	}
	w.since = max(w.since, min(w.ticks.span(until), at))
}

// forever is a sleep that only the alarm ends.
const forever time.Duration = 1<<63 - 1

func (w *Wheel) arrivedBefore(until timeout.Tick) bool {
	if timeout.Tick(w.needed.Load()) < until {
		return true
	}
	for i := range w.shards {
		if w.shards[i].inbox.Earliest() < until {
			return true
		}
	}
	return false
}
