package observe_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
)

// Counters by kind and result have few labels; a name in a label would make one series for
// each lock.
func ExampleObserver() {
	var acquired, lost expvar.Map
	observer := &observe.Observer{
		Acquired: func(_ context.Context, a observe.Acquired) {
			acquired.Add(a.Kind.String()+" "+string(a.Outcome), 1)
		},
		Ended: func(_ context.Context, e observe.Ended) {
			var loss *lock.LostError
			if errors.As(e.Err, &loss) {
				lost.Add(loss.Cause.String(), 1)
			}
		},
	}

	var t locktest.Scope
	defer t.End()
	server := locktest.StartMemory(&t)
	locker := server.Locker(&t, lock.Config{RequestTimeout: time.Minute, Observer: observer})
	ctx := context.Background()
	err := locker.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
		return server.Locker(&t, lock.Config{RequestTimeout: time.Minute}).Mutex("orders:42").MaxWait(0).Do(ctx, func(context.Context) error { return nil })
	})
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	lease, err := locker.Mutex("orders:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	server.Delete("orders:42")
	_ = lease.Unlock(ctx)
	fmt.Println(acquired.String(), lost.String())
	// Output:
	// true
	// {"mutex granted": 2} {"deleted": 1}
}
