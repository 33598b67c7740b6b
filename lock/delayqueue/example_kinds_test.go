package delayqueue_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

// A queue knows no kinds of jobs. A program that has some puts the kind into the payload,
// or uses a queue for each, with workers and a concurrency of its own.
func ExampleHandler_kinds() {
	queue, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())

	type job struct {
		Kind string          `json:"kind"`
		Args json.RawMessage `json:"args"`
	}
	kinds := map[string]func(ctx context.Context, args json.RawMessage) error{
		"greet": func(_ context.Context, args json.RawMessage) error {
			fmt.Printf("hello %s\n", args)
			return nil
		},
	}
	queue.PutAll(ctx, []delayqueue.Message{
		{ID: "1", Payload: []byte(`{"kind": "greet", "args": "ada"}`)},
		{ID: "2", Payload: []byte(`{"kind": "paint"}`)},
	})

	left := 2
	queue.Work(ctx, func(ctx context.Context, d *delayqueue.Delivery) error {
		var j job
		if err := json.Unmarshal(d.Payload, &j); err != nil {
			return delayqueue.Reject(err)
		}
		run := kinds[j.Kind]
		if run == nil {
			return delayqueue.Reject(fmt.Errorf("no kind %q in this program", j.Kind))
		}
		return run(ctx, j.Args)
	}, delayqueue.WorkerConfig{Concurrency: 1, Report: func(r delayqueue.Report) {
		fmt.Println(r.ID, r.Outcome, r.Err)
		if left--; left == 0 {
			stop()
		}
	}})
	// Output:
	// hello "ada"
	// 1 done <nil>
	// 2 buried no kind "paint" in this program
}
