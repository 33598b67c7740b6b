package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

func ExampleLocker_Semaphore() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	downloads := locker.Semaphore("downloads")
	if _, err := downloads.TrySetPermits(ctx, 3); err != nil { // the first client sets them
		log.Fatal(err)
	}

	if err := downloads.Acquire(ctx, 2); err != nil {
		log.Fatal(err)
	}
	err := downloads.TryAcquire(ctx, 2)
	fmt.Println(errors.Is(err, lock.ErrNotAcquired), err)
	if err := downloads.Release(ctx, 2); err != nil {
		log.Fatal(err)
	}
	fmt.Println(downloads.Available(ctx))
	// Output:
	// true lock: "downloads" not acquired: too few permits are available, or their number is not set
	// 3 <nil>
}

func ExampleSemaphore_MaxWait() {
	locker, _, end := exampleLocker()
	defer end()
	err := locker.Semaphore("nobody has set it").MaxWait(50*time.Millisecond).Acquire(context.Background(), 1)
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	// Output: true
}

func ExampleSemaphore_AddPermits() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	downloads := locker.Semaphore("downloads")
	if err := downloads.AddPermits(ctx, 5); err != nil {
		log.Fatal(err)
	}
	if err := downloads.Acquire(ctx, 4); err != nil {
		log.Fatal(err)
	}
	if err := downloads.AddPermits(ctx, -3); err != nil { // two of them are in use
		log.Fatal(err)
	}
	fmt.Println(downloads.Available(ctx))
	if err := downloads.Release(ctx, 4); err != nil {
		log.Fatal(err)
	}
	fmt.Println(downloads.Available(ctx))
	err := downloads.Acquire(ctx, 0)
	fmt.Println(err)
	// Output:
	// -2 <nil>
	// 2 <nil>
	// lock: count 0 is out of range: accepted are 1 to 2147483647
}

func ExampleSemaphore_Drain() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	downloads := locker.Semaphore("downloads")
	if _, err := downloads.TrySetPermits(ctx, 3); err != nil {
		log.Fatal(err)
	}
	fmt.Println(downloads.Drain(ctx)) // no other client starts one
	fmt.Println(downloads.Available(ctx))
	// Output:
	// 3 <nil>
	// 0 <nil>
}

func ExampleLocker_Permits() {
	locker, server, end := exampleLocker()
	defer end()
	var t locktest.Scope
	defer t.End()
	ctx := context.Background()
	pool := locker.Permits("pool")
	if _, err := pool.TrySetPermits(ctx, 2); err != nil {
		log.Fatal(err)
	}
	lease, err := pool.One().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	dying := server.Locker(&t, lock.Config{TTL: time.Second}) // as if in another process
	if _, err := dying.Permits("pool").One().Lock(ctx); err != nil {
		log.Fatal(err)
	}
	if err := dying.Close(); err != nil { // it ends without releasing its permit
		log.Fatal(err)
	}

	other, err := pool.One().Lock(ctx) // the permit returns by itself, within a second
	if err != nil {
		log.Fatal(err)
	}
	defer other.Unlock(ctx)
	fmt.Println("the first permit is still ours:", lease.Valid())
	fmt.Println("grants are numbered:", other.Token() > lease.Token())
	// Output:
	// the first permit is still ours: true
	// grants are numbered: true
}

func ExamplePermits_One() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	pool := locker.Permits("pool")
	if _, err := pool.TrySetPermits(ctx, 1); err != nil {
		log.Fatal(err)
	}
	err := pool.One().Do(ctx, func(ctx context.Context) error { // ctx ends if the permit is lost
		_, err := pool.One().TryLock(ctx) // a second permit: it is not reentrant
		return err
	})
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
	fmt.Println(pool.Available(ctx))
	// Output:
	// true
	// 1 <nil>
}

func ExamplePermits_One_perSecond() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	requests := locker.Permits("requests")
	if err := requests.AddPermits(ctx, 2); err != nil {
		log.Fatal(err)
	}
	perSecond := requests.One().With(lock.Options{TTL: time.Second, Fixed: true})
	begin := time.Now()
	for range 3 { // no more than two in any second; they are never released
		if _, err := perSecond.Lock(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(time.Since(begin) >= time.Second)
	// Output: true
}

func ExampleLocker_Latch() {
	here, server, end := exampleLocker()
	defer end()
	var t locktest.Scope
	defer t.End()
	there := server.Locker(&t, unhurried) // as if in another process
	ctx := context.Background()
	if _, err := here.Latch("warmed up").TrySetCount(ctx, 3); err != nil {
		log.Fatal(err)
	}

	var parts sync.WaitGroup
	for range 3 {
		parts.Go(func() {
			if err := here.Latch("warmed up").CountDown(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	if err := there.Latch("warmed up").Wait(ctx); err != nil {
		log.Fatal(err)
	}
	parts.Wait()
	fmt.Println(there.Latch("warmed up").Count(ctx))
	// Output: 0 <nil>
}

func ExampleLatch_Wait() {
	locker, _, end := exampleLocker()
	defer end()
	latch := locker.Latch("warmed up")
	if _, err := latch.TrySetCount(context.Background(), 1); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	fmt.Println(errors.Is(latch.Wait(ctx), context.DeadlineExceeded))
	fmt.Println(latch.Delete(context.Background()))
	fmt.Println(latch.Wait(context.Background()))
	// Output:
	// true
	// true <nil>
	// <nil>
}
