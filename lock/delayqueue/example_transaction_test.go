package delayqueue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The reminder is put if, and only if, the order is stored.
func ExampleQueue_PutTx() {
	var t locktest.Scope
	defer t.End()
	server := locktest.Start(&t)
	client := server.Client(&t)
	store, err := redisstore.New(client, redisstore.Config{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	queue, err := delayqueue.New(store, "{order:7}:mails", delayqueue.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()

	tx := client.TxPipeline()
	tx.HSet(ctx, "{order:7}", "state", "unpaid")
	reminder, err := queue.PutTx(ctx, tx, delayqueue.Message{ID: "reminder", Delay: time.Hour})
	if err != nil {
		panic(err)
	}
	fmt.Println(reminder.Err())
	_, err = tx.Exec(ctx)
	fmt.Println(err, reminder.Err())

	info, err := queue.Get(ctx, "reminder")
	fmt.Println(info.State, err)
	// Output:
	// delayqueue: "{order:7}:mails": message "reminder": the transaction was not executed yet, or discarded
	// <nil> <nil>
	// delayed <nil>
}
