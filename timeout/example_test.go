package timeout_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// A queue is the smallest possible engine: a list, and a clock that its user moves by
// hand in ticks of a second. Real ones, such as package wheel's, have a clock of their
// own and are safe for concurrent use.
type queue struct {
	now     timeout.Tick
	entries []*timeout.Entry
}

var noon = time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)

// After and At round up: no tick comes before its deadline.
func (q *queue) After(d time.Duration) timeout.Tick { return q.At(q.Time(q.now).Add(d)) }

func (q *queue) At(t time.Time) timeout.Tick {
	return max(q.now, timeout.Tick((t.Sub(noon)+time.Second-1)/time.Second))
}

func (q *queue) Time(k timeout.Tick) time.Time { return noon.Add(time.Duration(k) * time.Second) }

// Cancelled and Rearm maintain the list. This engine arms an entry again only while it is
// pending.
func (q *queue) Cancelled(e *timeout.Entry, _ uint64) {
	q.entries = slices.DeleteFunc(q.entries, func(other *timeout.Entry) bool { return other == e })
}

func (q *queue) Rearm(e *timeout.Entry, life uint64, tick timeout.Tick) bool {
	_, ok := e.Move(life, tick)
	return ok
}

func (q *queue) schedule(d time.Duration, task func()) timeout.Timeout {
	e := new(timeout.Entry)
	e.Bind(&timeout.Owner{Engine: q, Pooled: true})
	e.SetTask(task)
	e.Start(q.After(d))
	q.entries = append(q.entries, e)
	return e.Timeout()
}

func (q *queue) advance(d time.Duration) {
	q.now += timeout.Tick(d / time.Second)
	for _, e := range slices.Clone(q.entries) {
		if e.Expire(q.now) {
			e.Task()()
		}
	}
}

// An engine uses entries; its users see handles.
func Example() {
	q := &queue{}
	reminder := q.schedule(90*time.Second, func() { fmt.Println("ran at", q.Time(q.now).Format("15:04:05")) })
	fmt.Println("due at", reminder.Deadline().Format("15:04:05"))

	q.advance(time.Minute)
	reminder.Reset(2 * time.Minute)
	q.advance(time.Minute)
	fmt.Println(reminder.State())
	q.advance(time.Minute)
	fmt.Println(reminder.State())
	// Output:
	// due at 12:01:30
	// pending
	// ran at 12:03:00
	// expired
}

// Expire is one exit from the pending state and Cancel the other: the first one wins the
// task.
func ExampleEntry() {
	e := new(timeout.Entry)
	e.Bind(&timeout.Owner{Engine: &queue{}, Pooled: true})
	e.Start(10)
	fmt.Println("due at tick 9:", e.Expire(9))
	fmt.Println("cancelled:", e.Cancel(e.Life()))
	fmt.Println("due at tick 10:", e.Expire(10))

	handle := e.Timeout()
	e.EndLife() // the memory is to serve another timeout
	e.Start(20)
	fmt.Println("cancelled by a handle of the first:", handle.Cancel())
	// Output:
	// due at tick 9: false
	// cancelled: true
	// due at tick 10: false
	// cancelled by a handle of the first: false
}

// A later deadline needs no call of the engine, which finds the entry at its old place
// and sees that it is not due.
func ExampleEntry_Postpone() {
	e := new(timeout.Entry)
	e.Start(10)
	fmt.Println("later:", e.Postpone(e.Life(), 20))
	fmt.Println("due at tick 10:", e.Expire(10))
	fmt.Println("earlier:", e.Postpone(e.Life(), 5)) // takes Move, and the engine's attention
	// Output:
	// later: true
	// due at tick 10: false
	// earlier: false
}

// A periodic task stays pending: a run begins, sets the tick of the next one, and
// ends.
func ExampleEntry_Run() {
	e := new(timeout.Entry)
	e.Bind(&timeout.Owner{Engine: &queue{}})
	e.Admit(10)
	fmt.Println("due:", e.Hand(10))
	fmt.Println("begun:", e.Run(10, 20))
	fmt.Println(e.Timeout().State())
	fmt.Println("cancelled without a run under way:", e.Timeout().Cancel())
	e.Ran(false)
	fmt.Println(e.Timeout().State())
	// Output:
	// due: true
	// begun: true
	// pending
	// cancelled without a run under way: false
	// cancelled
}

// An engine needs five methods; see the queue of this package's example for what they do.
func ExampleEngine() {
	q := &queue{}
	var engine timeout.Engine = q
	fmt.Println(engine.After(1500 * time.Millisecond)) // rounded up
	fmt.Println(engine.Time(engine.At(noon.Add(time.Minute))).Format("15:04:05"))
	// Output:
	// 2
	// 12:01:00
}

// Entries of one owner share their common fields, and the engine.
func ExampleOwner() {
	var engine timeout.Engine = &queue{}
	owner := &timeout.Owner{Engine: engine}
	var first, second timeout.Entry
	first.Bind(owner)
	second.Bind(owner)
	fmt.Println(first.Owner().Engine == second.Owner().Engine)
	// Output: true
}

func ExampleTick() {
	q := &queue{}
	fmt.Println(q.After(1500 * time.Millisecond)) // ticks of a second: rounded up
	fmt.Println(q.Time(2).Format("15:04:05"))
	fmt.Println(timeout.MaxTick)
	// Output:
	// 2
	// 12:00:02
	// 281474976710655
}

// A handle is a value: it can be copied, compared, used as a key, and kept for ever.
func ExampleTimeout() {
	q := &queue{}
	waiting := map[timeout.Timeout]string{}
	waiting[q.schedule(time.Minute, func() {})] = "the first request"
	waiting[q.schedule(2*time.Minute, func() {})] = "the second request"
	q.advance(time.Minute)
	for t, request := range waiting {
		if t.State() == timeout.Expired {
			fmt.Println(request, "is over")
		}
	}
	// Output: the first request is over
}

func ExampleTimeout_Cancel() {
	q := &queue{}
	t := q.schedule(time.Minute, func() { fmt.Println("never runs") })
	fmt.Println(t.Cancel())
	fmt.Println(t.Cancel()) // nothing is left to cancel
	q.advance(time.Hour)
	// Output:
	// true
	// false
}

func ExampleTimeout_Reset() {
	q := &queue{}
	t := q.schedule(time.Minute, func() { fmt.Println("the connection was idle for a minute") })
	q.advance(40 * time.Second)
	t.Reset(time.Minute) // traffic
	q.advance(40 * time.Second)
	fmt.Println("80 s after the start, 40 s after the reset")
	q.advance(20 * time.Second)
	fmt.Println(t.Reset(time.Minute)) // too late
	// Output:
	// 80 s after the start, 40 s after the reset
	// the connection was idle for a minute
	// false
}

// Many timeouts are moved with one reading of the clock.
func ExampleTimeout_ResetAt() {
	q := &queue{}
	sessions := []timeout.Timeout{
		q.schedule(time.Minute, func() {}),
		q.schedule(2*time.Minute, func() {}),
	}
	deadline := q.Time(q.now).Add(10 * time.Minute)
	for _, t := range sessions {
		t.ResetAt(deadline)
		fmt.Println(t.Deadline().Format("15:04:05"))
	}
	// Output:
	// 12:10:00
	// 12:10:00
}

func ExampleTimeout_State() {
	q := &queue{}
	var t timeout.Timeout
	fmt.Println(t.State())
	t = q.schedule(time.Second, func() {})
	fmt.Println(t.State())
	q.advance(time.Second)
	fmt.Println(t.State())
	// Output:
	// idle
	// pending
	// expired
}

// The deadline is the requested one, rounded up to a tick.
func ExampleTimeout_Deadline() {
	q := &queue{}
	t := q.schedule(300*time.Millisecond, func() {})
	fmt.Println(t.Deadline().Format("15:04:05"))
	t.Cancel()
	fmt.Println(t.Deadline().IsZero())
	// Output:
	// 12:00:01
	// true
}

func ExampleState() {
	for _, s := range []timeout.State{timeout.Idle, timeout.Pending, timeout.Expired, timeout.Cancelled, timeout.Done} {
		fmt.Println(s)
	}
	// Output:
	// idle
	// pending
	// expired
	// cancelled
	// done
}
