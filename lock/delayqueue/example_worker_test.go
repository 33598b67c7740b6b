package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// errNoAddress is an error of a mail server that no further attempt changes.
var errNoAddress = errors.New("no such address")

// mailer sends mails at their times, also those that another process has put. A mail may be
// sent twice if a process dies at the wrong moment, so each has a key by which the mail
// server recognizes it.
type mailer struct {
	queue *delayqueue.Queue
	send  func(ctx context.Context, key, text string) error
}

// later puts a mail into the queue. It may be repeated: the key is the message's id.
func (m *mailer) later(ctx context.Context, key, text string, delay time.Duration) error {
	_, err := m.queue.Put(ctx, delayqueue.Message{ID: key, Payload: []byte(text), Delay: delay})
	if errors.Is(err, delayqueue.ErrDuplicate) {
		return nil // it is in the queue already
	}
	return err
}

// work sends mails until ctx ends, and then finishes those that it has begun.
func (m *mailer) work(ctx context.Context) error {
	return m.queue.Work(ctx, m.handle, delayqueue.WorkerConfig{
		Concurrency: 8,
		MaxAttempts: 5,
		MaxHold:     10 * time.Minute, // a handler that hangs
		Backoff:     delayqueue.Exponential(10*time.Millisecond, time.Hour),
		Grace:       20 * time.Second, // less than the supervisor waits until it kills the process
	})
}

func (m *mailer) handle(ctx context.Context, d *delayqueue.Delivery) error {
	err := m.send(ctx, d.ID, string(d.Payload)) // ctx ends if the lease is lost
	if errors.Is(err, errNoAddress) {
		return delayqueue.Reject(err) // a dead letter, at once
	}
	return err // nil: done; an error: again after the backoff
}

// A worker of a delay queue: retries, dead letters, and a shutdown that loses no message.
func Example_worker() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open
	defer t.End()
	queue, err := delayqueue.New(locktest.Start(&t).Store(&t), "mails", delayqueue.Config{})
	if err != nil {
		panic(err)
	}
	var tried atomic.Bool
	sent, asked := make(chan string), make(chan string)
	m := &mailer{queue: queue, send: func(_ context.Context, key, text string) error {
		switch {
		case text == "":
			asked <- key
			return errNoAddress
		case key == "welcome 7" && tried.CompareAndSwap(false, true):
			return errors.New("the mail server is busy")
		}
		sent <- key + ": " + text
		return nil
	}}
	ctx, shutDown := context.WithCancel(context.Background()) // a program: signal.NotifyContext
	ended := make(chan error)
	go func() { ended <- m.work(ctx) }()

	fmt.Println(m.later(ctx, "welcome 7", "Welcome!", 0))
	fmt.Println(<-sent) // by the second attempt
	fmt.Println(m.later(ctx, "survey 7", "How was it?", 24*time.Hour))
	fmt.Println(m.later(ctx, "survey 7", "How was it?", 24*time.Hour)) // repeated
	fmt.Println(m.later(ctx, "empty 7", "", 0))
	<-asked

	shutDown()
	fmt.Println("ended:", <-ended)
	ctx = context.Background()
	for letter, err := range queue.Dead(ctx) {
		fmt.Println("dead:", letter.ID, letter.LastError, err)
	}
	stats, err := queue.Stats(ctx)
	fmt.Println("still waiting:", stats.Delayed, err)
	fmt.Println("closed:", queue.Shutdown(ctx))
	// Output:
	// <nil>
	// welcome 7: Welcome!
	// <nil>
	// <nil>
	// <nil>
	// ended: <nil>
	// dead: empty 7 no such address <nil>
	// still waiting: 1 <nil>
	// closed: <nil>
}
