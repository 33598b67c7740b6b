package elect_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// assigner is a service that runs on every machine. The leader of its fleet assigns the
// shards, every so often.
type assigner struct {
	locker *lock.Locker
	every  time.Duration
	assign func(ctx context.Context, term int64) error
}

// run stands for election until ctx ends, and leads whenever it is elected. It returns nil
// after ctx has ended, and otherwise the error that ended it.
func (a *assigner) run(ctx context.Context) error {
	err := elect.New(a.locker, "assigner", lock.Options{}).Run(ctx, a.lead)
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (a *assigner) lead(ctx context.Context, term int64) error {
	ticker := time.NewTicker(a.every)
	defer ticker.Stop()
	for {
		if err := a.assign(ctx, term); err != nil {
			return err // or elect.ErrResign: let another candidate try, and stand again
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// assignments stands for the database that the leader changes. It refuses a leader that was
// paused and has a successor: in SQL, "UPDATE … WHERE term <= ?".
type assignments struct {
	mu   sync.Mutex
	term int64
}

func (a *assignments) save(term int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if term < a.term {
		return fmt.Errorf("term %d is over", term)
	}
	a.term = term
	return nil
}

// Two processes of a service, of which one leads. When it shuts down, the other one takes
// over at once.
func Example_leader() {
	var t locktest.Scope // instead of a server; a program: redisstore.Open and lock.New
	defer t.End()
	server := locktest.StartMemory(&t)
	var table assignments
	saved := make(chan int64)
	assign := func(ctx context.Context, term int64) error {
		if err := table.save(term); err != nil {
			return err
		}
		select {
		case saved <- term:
		case <-ctx.Done():
		}
		return nil
	}
	begin := func(locker *lock.Locker) (stop func() error) {
		ctx, cancel := context.WithCancel(context.Background()) // a program: signal.NotifyContext
		a := &assigner{locker: locker, every: time.Millisecond, assign: assign}
		ended := make(chan error, 1)
		go func() { ended <- a.run(ctx) }()
		return func() error {
			cancel()
			return <-ended // the leadership is released
		}
	}

	stopFirst := begin(server.Locker(&t, lock.Config{}))
	first := <-saved
	stopSecond := begin(server.Locker(&t, lock.Config{}))
	fmt.Println("the same leader goes on:", <-saved == first)
	fmt.Println("first process ends:", stopFirst())
	second := <-saved
	fmt.Println("the next term is larger:", second > first)
	fmt.Println("the first leader is refused:", table.save(first) != nil)
	fmt.Println("second process ends:", stopSecond())
	// Output:
	// the same leader goes on: true
	// first process ends: <nil>
	// the next term is larger: true
	// the first leader is refused: true
	// second process ends: <nil>
}
