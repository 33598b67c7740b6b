package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// Workers drop dead letters after some time.
func ExampleConfig_retention() {
	var t locktest.Scope
	defer t.End()
	queue, err := delayqueue.New(locktest.Start(&t).Store(&t), "mails", delayqueue.Config{
		Retention: 20 * time.Millisecond, // in a program: some days
		Poll:      10 * time.Millisecond,
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	queue.Put(ctx, delayqueue.Message{ID: "typo"})
	go queue.Work(ctx, func(context.Context, *delayqueue.Delivery) error {
		return delayqueue.Reject(errors.New("no such address"))
	}, delayqueue.WorkerConfig{})

	for err == nil {
		_, err = queue.Get(ctx, "typo")
	}
	fmt.Println(err)
	queue.Shutdown(ctx)
	// Output:
	// delayqueue: "mails": message "typo": delayqueue: no such message
}
