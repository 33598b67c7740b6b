package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// exampleQueue returns a queue on a server within the process, so that examples run
// anywhere, and a function that closes both. A program opens its store with
// redisstore.Open.
func exampleQueue() (*delayqueue.Queue, func()) {
	var t locktest.Scope
	store := locktest.Start(&t).Store(&t)
	queue, err := delayqueue.New(store, "mails", delayqueue.Config{})
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { queue.Shutdown(context.Background()) })
	return queue, t.End
}

func Example() {
	queue, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())

	queue.Put(ctx, delayqueue.Message{ID: "at once", Payload: []byte("welcome")})
	queue.Put(ctx, delayqueue.Message{ID: "later", Payload: []byte("how was it?"), Delay: 300 * time.Millisecond})

	queue.Work(ctx, func(_ context.Context, d *delayqueue.Delivery) error {
		fmt.Printf("%s: %s\n", d.ID, d.Payload)
		if d.ID == "later" {
			stop() // Work returns when this handler has
		}
		return nil
	}, delayqueue.WorkerConfig{Concurrency: 1}) // one after the other, as they are due
	// Output:
	// at once: welcome
	// later: how was it?
}

func ExampleNew() {
	store, err := redisstore.Open("redis://127.0.0.1:6379", redisstore.Config{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	queue, err := delayqueue.New(store, "mails", delayqueue.Config{})
	if err != nil {
		panic(err)
	}
	defer queue.Shutdown(context.Background())
	fmt.Println(queue.Name())
	// Output: mails
}

// An id of the caller's makes a Put safe to repeat.
func ExampleQueue_Put() {
	queue, end := exampleQueue()
	defer end()
	ctx := context.Background()
	reminder := delayqueue.Message{ID: "invoice 7: reminder", Delay: 14 * 24 * time.Hour}

	id, err := queue.Put(ctx, reminder)
	fmt.Println(id, err)
	_, err = queue.Put(ctx, reminder)
	fmt.Println(errors.Is(err, delayqueue.ErrDuplicate))

	_, err = queue.Put(ctx, delayqueue.Message{Payload: []byte("x"), Delay: -time.Second})
	fmt.Println(err)
	// Output:
	// invoice 7: reminder <nil>
	// true
	// delayqueue: invalid: a delay of -1s; accepted are 0 … 87600h0m0s
}

func ExampleQueue_PutAll() {
	queue, end := exampleQueue()
	defer end()
	receipts, err := queue.PutAll(context.Background(), []delayqueue.Message{
		{ID: "a", Due: time.Now().Add(time.Hour)}, {ID: "b"}, {ID: "a"},
	})
	for _, r := range receipts {
		fmt.Println(r.ID, r.Duplicate)
	}
	fmt.Println(err)
	// Output:
	// a false
	// b false
	// a true
	// <nil>
}

// A paid invoice needs no reminder; a promised payment, a later one.
func ExampleQueue_Cancel() {
	queue, end := exampleQueue()
	defer end()
	ctx := context.Background()
	queue.Put(ctx, delayqueue.Message{ID: "invoice 7", Delay: time.Hour})
	queue.Put(ctx, delayqueue.Message{ID: "invoice 8", Delay: time.Hour})

	fmt.Println(queue.MoveIn(ctx, "invoice 7", 24*time.Hour))
	fmt.Println(queue.Cancel(ctx, "invoice 8"))
	fmt.Println(queue.Cancel(ctx, "invoice 8"))
	// Output:
	// <nil>
	// <nil>
	// delayqueue: "mails": message "invoice 8": delayqueue: no such message
}

// The token protects a resource from a worker that has lost its lease unknowingly.
func ExampleQueue_Work() {
	queue, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	queue.Put(ctx, delayqueue.Message{ID: "payment 7"})

	var newest int64 // kept by the resource, beside its data
	err := queue.Work(ctx, func(ctx context.Context, d *delayqueue.Delivery) error {
		defer stop()
		if d.Token < newest {
			return errors.New("a later worker was here")
		}
		newest = d.Token
		fmt.Println(d.ID, "attempt", d.Attempt, "still ours:", d.Valid(), ctx.Err())
		return nil
	}, delayqueue.WorkerConfig{
		Concurrency: 8,
		TTL:         time.Minute,
		MaxHold:     time.Hour,
	})
	fmt.Println(err)
	// Output:
	// payment 7 attempt 1 still ours: true <nil>
	// <nil>
}

// A handler's error decides what happens to the message, and the report has the outcome.
func ExampleReject() {
	queue, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	queue.PutAll(ctx, []delayqueue.Message{{ID: "flaky"}, {ID: "hopeless"}})

	left := 3
	queue.Work(ctx, func(_ context.Context, d *delayqueue.Delivery) error {
		switch {
		case d.ID == "hopeless":
			return delayqueue.Reject(errors.New("no such address"))
		case d.Attempt == 1:
			return delayqueue.RetryAfter(20*time.Millisecond, errors.New("the line was busy"))
		}
		return nil
	}, delayqueue.WorkerConfig{Concurrency: 1, Report: func(r delayqueue.Report) {
		fmt.Println(r.ID, r.Outcome)
		if left--; left == 0 {
			stop()
		}
	}})
	// Output:
	// flaky retried
	// hopeless buried
	// flaky done
}

func ExampleExponential() {
	backoff := delayqueue.Exponential(time.Second, time.Minute)
	for _, attempt := range []int{1, 2, 3, 10} {
		d := backoff(attempt, nil)
		most := min(time.Second<<(attempt-1), time.Minute)
		fmt.Println(attempt, most/2 <= d && d <= most)
	}
	// Output:
	// 1 true
	// 2 true
	// 3 true
	// 10 true
}

// Dead letters can be listed, dropped, or revived.
func ExampleQueue_Dead() {
	queue, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	queue.PutAll(ctx, []delayqueue.Message{{ID: "typo"}, {ID: "outage"}})
	left := 2
	queue.Work(ctx, func(_ context.Context, d *delayqueue.Delivery) error {
		if left--; left == 0 {
			stop()
		}
		return delayqueue.Reject(errors.New("found a " + d.ID))
	}, delayqueue.WorkerConfig{Concurrency: 1})

	ctx = context.Background()
	for letter, err := range queue.Dead(ctx) {
		if err != nil {
			panic(err)
		}
		fmt.Println(letter.ID, letter.State, letter.Attempt, letter.LastError)
		if letter.ID == "outage" {
			queue.Revive(ctx, letter.ID)
		} else {
			queue.Cancel(ctx, letter.ID)
		}
	}
	info, err := queue.Get(ctx, "outage")
	fmt.Println(info.State, err)
	// Output:
	// outage dead 1 found a outage
	// typo dead 1 found a typo
	// ready <nil>
}

// The values for monitoring.
func ExampleQueue_Stats() {
	queue, end := exampleQueue()
	defer end()
	ctx := context.Background()
	queue.PutAll(ctx, []delayqueue.Message{{ID: "a", Delay: time.Hour}, {ID: "b"}, {ID: "c"}})

	stats, err := queue.Stats(ctx)
	fmt.Println("delayed:", stats.Delayed, "ready:", stats.Ready, "with workers:", stats.Leased, "dead:", stats.Dead, err)
	fmt.Println("waiting for a worker since about now:", stats.Age < time.Minute)
	// Output:
	// delayed: 1 ready: 2 with workers: 0 dead: 0 <nil>
	// waiting for a worker since about now: true
}
