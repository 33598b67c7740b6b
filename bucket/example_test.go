package bucket_test

import (
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// A worker is the smallest engine around an inbox and two buckets: one that holds
// everything and one for what is due. Package wheel has many of the former, and a
// clock. Here ticks are seconds, and the example is the clock.
type worker struct {
	inbox        bucket.Inbox
	waiting, due bucket.Bucket
	now          timeout.Tick
}

func newWorker() *worker {
	w := &worker{}
	w.inbox.Init(&timeout.Owner{Engine: w, Pooled: true})
	w.waiting.Number(1)
	w.due.Number(2)
	return w
}

func (w *worker) After(d time.Duration) timeout.Tick {
	return w.now + timeout.Tick((d+time.Second-1)/time.Second)
}

func (w *worker) At(t time.Time) timeout.Tick { return timeout.Tick(t.Unix()) }

func (w *worker) Time(k timeout.Tick) time.Time { return time.Unix(int64(k), 0) }

// Cancelled is called on the goroutine that cancels. The inbox queues a node for the
// worker if the worker has it.
func (w *worker) Cancelled(e *timeout.Entry, life uint64) { w.inbox.Cancelled(bucket.Of(e), life) }

func (w *worker) Rearm(e *timeout.Entry, life uint64, tick timeout.Tick) bool {
	_, ok := w.inbox.Move(bucket.Of(e), life, tick)
	return ok
}

// gather takes the arrivals, and the changes of earlier ones.
func (w *worker) gather() {
	var buf [16]*bucket.Node
	w.inbox.Detach()
	for k := w.inbox.Take(buf[:]); k > 0; k = w.inbox.Take(buf[:]) {
		for _, n := range buf[:k] {
			w.link(n)
		}
	}
	for k := w.inbox.TakeChanged(buf[:]); k > 0; k = w.inbox.TakeChanged(buf[:]) {
		for _, n := range buf[:k] {
			w.waiting.Remove(n)
			if _, pending := n.PendingTick(); pending {
				w.link(n)
			} else {
				w.inbox.Drop([]*bucket.Node{n})
			}
		}
	}
}

func (w *worker) link(n *bucket.Node) {
	tick, _ := n.PendingTick()
	w.waiting.Add(n, tick)
}

// advance runs what is due by a tick.
func (w *worker) advance(now timeout.Tick) {
	w.gather()
	w.now = now
	var strays bucket.Bucket
	w.waiting.Sweep(now, 0, &w.due, &strays) // with one bucket, none has strayed
	for n := w.due.Pop(); n != nil; n = w.due.Pop() {
		if n.Expire(now) {
			n.Task()()
		}
		w.inbox.Drop([]*bucket.Node{n})
	}
}

// An engine in miniature: other goroutines put nodes into the inbox, one worker links
// them, and runs the due ones.
func Example() {
	w := newWorker()
	put := func(tick timeout.Tick, name string) timeout.Timeout {
		t, _, _ := w.inbox.Put(tick, func() { fmt.Println(name, "at", w.now) })
		return t
	}
	put(3, "ping")
	call := put(5, "call")
	lunch := put(12, "lunch")

	w.advance(4)
	call.Cancel()
	lunch.Reset(2 * time.Second)
	w.advance(10)
	fmt.Println(w.waiting.Empty())
	// Output:
	// ping at 4
	// lunch at 10
	// true
}

// Putting and cancelling costs no worker: a node that is cancelled among the arrivals
// never reaches it.
func ExampleInbox() {
	w := newWorker()
	request, by, ok := w.inbox.Put(30, func() {})
	fmt.Println("accepted:", ok, "- the worker should be awake by", by)
	request.Cancel()
	var buf [8]*bucket.Node
	w.inbox.Detach()
	fmt.Println("taken by the worker:", w.inbox.Take(buf[:]))
	w.inbox.Close()
	_, _, ok = w.inbox.Put(30, func() {})
	fmt.Println("accepted after Close:", ok)
	// Output:
	// accepted: true - the worker should be awake by 30
	// taken by the worker: 0
	// accepted after Close: false
}

// A bucket of a wheel with eight of them: one pass takes out the due nodes, and those
// whose deadline has been moved to another bucket.
func ExampleBucket() {
	var slot3, due, strays bucket.Bucket
	slot3.Number(3 + 1)
	owner := &timeout.Owner{Engine: newWorker(), Pooled: true}
	var nodes [3]bucket.Node
	for i, tick := range []timeout.Tick{3, 3 + 8, 3} { // this round, the next, this
		n := &nodes[i]
		n.Bind(owner)
		n.Start(tick)
		slot3.Add(n, tick)
	}
	nodes[2].Postpone(nodes[2].Life(), 5)

	const mask = 8 - 1
	slot3.Sweep(3, mask, &due, &strays)
	fmt.Println("due:", due.Pop() == &nodes[0])
	fmt.Println("to be linked anew:", strays.Pop() == &nodes[2])
	fmt.Println("with a round to go, at tick", slot3.Earliest())
	// Output:
	// due: true
	// to be linked anew: true
	// with a round to go, at tick 11
}

// A node is found by the entry that it embeds, which is the argument of an engine's
// methods.
func ExampleNode() {
	n := new(bucket.Node)
	fmt.Println(bucket.Of(&n.Entry) == n, n.List())
	// Output: true 0
}
