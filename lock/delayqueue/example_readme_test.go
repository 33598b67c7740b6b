package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The queue of README.md, verbatim, on a server in this process.
func Example_readme() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	store, err := redisstore.Open("redis://"+server.Addr(), redisstore.Config{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ctx = context.WithValue(ctx, shutDown{}, stop)
	if err := readmeQueue(ctx, store, []byte("please pay")); err != nil {
		fmt.Println(err)
	}
	// Output: invoice 7: please pay
}

// shutDown is the key of the function that ends the program. Handlers find it in their
// contexts, as they find all values of Work's.
type shutDown struct{}

func send(ctx context.Context, d *delayqueue.Delivery) error {
	fmt.Printf("%s: %s\n", d.ID, d.Payload)
	ctx.Value(shutDown{}).(context.CancelFunc)()
	return nil
}

func readmeQueue(ctx context.Context, store *redisstore.Store, reminder []byte) error {
	queue, err := delayqueue.New(store, "reminders", delayqueue.Config{})
	if err != nil {
		return err
	}
	defer queue.Shutdown(context.WithoutCancel(ctx))

	message := delayqueue.Message{ID: "invoice 7", Payload: reminder, Delay: time.Second}
	if _, err := queue.Put(ctx, message); err != nil && !errors.Is(err, delayqueue.ErrDuplicate) {
		return err
	}

	return queue.Work(ctx, func(ctx context.Context, d *delayqueue.Delivery) error {
		return send(ctx, d) // an error: again after a backoff, ten times at most
	}, delayqueue.WorkerConfig{Concurrency: 8})
}
