package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// exampleLocker returns a locker on an in-process server, so that examples run anywhere,
// and a function that stops both. A program makes its own with redisstore.Open and
// lock.New.
func exampleLocker() (*lock.Locker, *locktest.Server, func()) {
	var t examples
	server := locktest.Start(&t)
	return server.Locker(&t, lock.Config{TTL: time.Second}), server, t.end
}

// examples is the part of testing.TB that locktest needs.
type examples struct {
	testing.TB
	cleanups []func()
}

func (t *examples) Helper()                   {}
func (t *examples) Cleanup(f func())          { t.cleanups = append(t.cleanups, f) }
func (t *examples) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }
func (t *examples) Errorf(f string, a ...any) { log.Printf(f, a...) }

func (t *examples) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
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
	defer locker.Close(context.Background())
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

func ExampleMutex_LockWithin() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	_, err = locker.Mutex("report").LockWithin(ctx, 50*time.Millisecond)
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

func ExampleMutex_GoWithin() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("account:7").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	d, err := locker.Mutex("account:7").GoWithin(ctx, 50*time.Millisecond, func(context.Context) error {
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
	var t examples
	defer t.end()
	there := server.Locker(&t, lock.Config{}) // as if in another process
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
		time.Sleep(100 * time.Millisecond) // first come, first served
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
	lease, err := locker.Mutex("orders:42").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}

	server.Delete("orders:42") // an operator deletes the lock

	<-lease.Lost()
	if loss, ok := errors.AsType[*lock.LostError](lease.Err()); ok {
		fmt.Println(loss.Cause)
	}
	// Output: deleted
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
	fmt.Println(lock.ValidateName("report {draft"))
	// Output:
	// report %7Bdraft%7D
	// lock: name "report {draft": a lone brace; accepted is a hash tag like "{user:7}:cart", or escape it with EscapeName
}

func ExampleRetry() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	again := lock.Exponential(10*time.Millisecond, time.Second).Jittered(0.5).Limited(3)
	_, err = locker.Mutex("report").With(lock.Options{Retry: again}).Lock(ctx)
	fmt.Println(errors.Is(err, lock.ErrRetriesExhausted), errors.Is(err, lock.ErrNotAcquired))
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: true true
}
