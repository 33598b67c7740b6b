package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/lock/retry"
)

// unhurried is a configuration whose requests and leases no machine is too slow for.
var unhurried = lock.Config{TTL: 3 * time.Minute, RequestTimeout: time.Minute}

// exampleLocker returns a locker on an in-process server, so that examples run anywhere,
// and a function that stops both. A program makes its own with redisstore.Open and
// lock.New.
func exampleLocker() (*lock.Locker, *locktest.Memory, func()) {
	var t locktest.Scope
	server := locktest.StartMemory(&t)
	return server.Locker(&t, unhurried), server, t.End
}

func ExampleNew() {
	store, err := redisstore.Open("redis://127.0.0.1:6379", redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	locker, err := lock.New(store, lock.Config{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	fmt.Println(locker.Mutex("orders:42").Name())
	// Output: orders:42
}

func ExampleMutex_Lock() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()

	lease, err := locker.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	fmt.Println("working under", lease.Name(), "while it is valid:", lease.Valid())
	// Output: working under orders:42 while it is valid: true
}

func ExampleMutex_TryLock() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	_, err = locker.Mutex("report").TryLock(ctx)
	if errors.Is(err, lock.ErrNotAcquired) {
		fmt.Println("somebody else makes the report")
	}
	// Output: somebody else makes the report
}

func ExampleMutex_MaxWait() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	_, err = locker.Mutex("report").MaxWait(50 * time.Millisecond).Lock(ctx)
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	// Output: true
}

func ExampleMutex_Do() {
	locker, _, end := exampleLocker()
	defer end()

	err := locker.Mutex("orders:42").Do(context.Background(), func(ctx context.Context) error {
		// ctx ends when the lease is lost. It also carries the ownership:
		return locker.Mutex("orders:42").Do(ctx, func(context.Context) error {
			fmt.Println("held twice")
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// held twice
	// <nil>
}

// A job that another process is running already is left out.
func ExampleMutex_MaxWait_zero() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	report := locker.Mutex("report")

	err := report.MaxWait(0).Do(ctx, func(context.Context) error {
		fmt.Println("running")
		return report.MaxWait(0).Do(ctx, func(context.Context) error { // as another process would
			fmt.Println("running twice")
			return nil
		})
	})
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	// Output:
	// running
	// true
}

func ExampleMutex_MaxWait_do() {
	locker, _, end := exampleLocker()
	defer end()

	// The wait has a limit of 100 ms; the function has none.
	err := locker.Mutex("orders:42").MaxWait(100*time.Millisecond).Do(context.Background(), func(context.Context) error {
		fmt.Println("shipping")
		return nil
	})
	fmt.Println(err)
	// Output:
	// shipping
	// <nil>
}

// A handler stops when its client has gone, and when its lease is lost.
func ExampleLease_Within() {
	locker, _, end := exampleLocker()
	defer end()

	http.HandleFunc("POST /orders/{id}/ship", func(w http.ResponseWriter, r *http.Request) {
		lease, err := locker.Mutex("orders:" + r.PathValue("id")).MaxWait(time.Second).Lock(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		defer lease.Unlock(r.Context())
		ctx, cancel := lease.Within(r.Context())
		defer cancel()
		fmt.Fprintln(w, "shipping", r.PathValue("id"), ctx.Err())
	})
	reply := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(reply, httptest.NewRequest("POST", "/orders/42/ship", nil))
	fmt.Print(reply.Body)
	// Output: shipping 42 <nil>
}

func ExampleMutex_Go() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("account:7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	var deferred []*lock.Deferred
	for i := range 3 {
		d, err := locker.Mutex("account:7").Go(ctx, func(context.Context) error {
			fmt.Println("settled by function", i)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		deferred = append(deferred, d)
	}
	fmt.Println("three functions wait, without goroutines")
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	for _, d := range deferred {
		if err := d.Wait(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// three functions wait, without goroutines
	// settled by function 0
	// settled by function 1
	// settled by function 2
}

func ExampleMutex_MaxWait_deferred() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("account:7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	d, err := locker.Mutex("account:7").MaxWait(50*time.Millisecond).Go(ctx, func(context.Context) error {
		fmt.Println("never called: the lock does not come free in time")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(d.Wait(ctx), lock.ErrNotAcquired))
	// Output: true
}

func ExampleDeferred_Cancel() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("account:7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	d, err := locker.Mutex("account:7").Go(ctx, func(context.Context) error {
		fmt.Println("never called")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("in time:", d.Cancel())
	<-d.Done()
	fmt.Println(errors.Is(d.Err(), lock.ErrCancelled))
	// Output:
	// in time: true
	// true
}

func ExampleMutex_With() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()

	// A lease of fixed length is not renewed.
	lease, err := locker.Mutex("nightly").With(lock.Options{TTL: 100 * time.Millisecond, Fixed: true}).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	<-lease.Lost()
	fmt.Println(lease.Err())
	fmt.Println(errors.Is(lease.Unlock(ctx), lock.ErrLost))
	// Output:
	// lock: lease "nightly" lost: expired here
	// true
}

// If many goroutines of a process want one lock, Unlock can serve the next of them
// without a request to the server.
func ExampleOptions_passes() {
	locker, _, stop := exampleLocker()
	defer stop()
	ctx := context.Background()
	counter := locker.Mutex("counter").With(lock.Options{Passes: 100})
	var work sync.WaitGroup
	var latest int64
	grows := true
	for range 20 {
		work.Go(func() {
			lease, err := counter.Lock(ctx)
			if err != nil {
				fmt.Println(err)
				return
			}
			grows = grows && lease.Token() > latest
			latest = lease.Token()
			if err := lease.Unlock(ctx); err != nil {
				fmt.Println(err)
			}
		})
	}
	work.Wait()
	fmt.Println("each has a token of its own:", grows)
	// Output: each has a token of its own: true
}

func ExampleLocker_Fair() {
	here, server, end := exampleLocker()
	defer end()
	var t locktest.Scope
	defer t.End()
	there := server.Locker(&t, unhurried) // as if in another process
	ctx := context.Background()
	lease, err := here.Fair("printer").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	var served sync.WaitGroup
	for i, locker := range []*lock.Locker{there, here, there} {
		served.Go(func() {
			err := locker.Fair("printer").Do(ctx, func(context.Context) error {
				fmt.Println("served:", i+1)
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
		for waiting := 0; waiting <= i; { // first come, first served
			info, err := here.Inspect(ctx, "printer")
			if err != nil {
				log.Fatal(err)
			}
			waiting = len(info.Waiters)
		}
	}
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	served.Wait()
	// Output:
	// served: 1
	// served: 2
	// served: 3
}

func ExampleLease_Lost() {
	locker, server, end := exampleLocker()
	defer end()
	lease, err := locker.Mutex("orders:42").With(lock.Options{TTL: time.Second}).Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}

	server.Delete("orders:42") // an operator deletes the lock

	<-lease.Lost() // at the next renewal
	if loss, ok := errors.AsType[*lock.LostError](lease.Err()); ok {
		fmt.Println("lost:", loss.Key) // and why: loss.Cause is renewal.Deleted
	}
	// Output: lost: orders:42
}

func ExampleLease_Token() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()

	// The resource keeps the largest token that it has seen, and refuses smaller ones.
	var largest int64
	write := func(token int64) bool {
		if token < largest {
			return false
		}
		largest = token
		return true
	}

	early, err := locker.Mutex("file").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	stale := early.Token() // its holder is paused here, and loses the lock
	_ = early.Unlock(ctx)

	late, err := locker.Mutex("file").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer late.Unlock(ctx)
	fmt.Println("the new holder writes:", write(late.Token()))
	fmt.Println("the old one writes:", write(stale))
	// Output:
	// the new holder writes: true
	// the old one writes: false
}

func ExampleEscapeName() {
	fmt.Println(lock.EscapeName("report {draft}"))
	fmt.Println(driver.ValidateName("report {draft"))
	// Output:
	// report %7Bdraft%7D
	// lock: name "report {draft": a lone brace; accepted is a hash tag like "{user:7}:cart", or escape it with EscapeName
}

func ExampleOptions_retry() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	again := retry.Exponential(10*time.Millisecond, time.Second).Jittered(0.5).Limited(3)
	_, err = locker.Mutex("report").With(lock.Options{Retry: again}).Lock(ctx)
	fmt.Println(errors.Is(err, lock.ErrRetriesExhausted), errors.Is(err, lock.ErrNotAcquired))
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: true true
}

// Stats shows what a process holds, and whether its renewals are in time.
func ExampleLocker_Stats() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()

	lease, err := locker.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	s := locker.Stats()
	fmt.Println("held:", s.Leases.Held, "lost:", s.Leases.Lost.Total(), "late:", s.Leases.Late())
	fmt.Println("waiting:", s.Waiting, "deferred:", s.Deferred, "unreleased:", s.Unreleased)
	// Output:
	// held: 1 lost: 0 late: 0
	// waiting: 0 deferred: 0 unreleased: 0
}

// A job that runs once a period in the whole fleet, like a cron job on every host: each
// host tries the lock when its clock says so, and MinHold covers the clocks' difference.
// The server's own TTL ends the hold, so a host may exit after its job.
func ExampleOptions_MinHold() {
	_, server, stop := exampleLocker()
	defer stop()
	var t locktest.Scope
	defer t.End()
	ctx := context.Background()

	report := func(context.Context) error {
		fmt.Println("the report is sent")
		return nil
	}
	for range 3 { // hosts, whose clocks are a few milliseconds apart
		locker := server.Locker(&t, unhurried)
		once := locker.Mutex("report").With(lock.Options{MinHold: time.Minute})
		err := once.MaxWait(0).Do(ctx, report)
		if errors.Is(err, lock.ErrNotAcquired) {
			continue // another host has done it
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output: the report is sent
}
