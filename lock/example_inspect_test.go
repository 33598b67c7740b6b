package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

func ExampleLocker_Inspect() {
	locker, server, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	var t locktest.Scope // another process
	defer t.End()
	info, err := server.Locker(&t, unhurried).Inspect(ctx, "orders:42", driver.KindMutex)
	if err != nil {
		log.Fatal(err)
	}
	for _, holder := range info.Holders {
		fmt.Println(info.Name, "is held, a", info.Kind)
		fmt.Println("by this process:", holder.Client.ID == locker.ClientID())
		fmt.Println("so often:", holder.Holds)
	}
	// Output:
	// orders:42 is held, a mutex
	// by this process: true
	// so often: 1
}

func ExampleLocker_List() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	for _, name := range []string{"orders:1", "orders:2", "report"} {
		lease, err := locker.Mutex(name).Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		defer lease.Unlock(ctx)
	}

	for info, err := range locker.List(ctx, "orders:*") {
		if err != nil {
			log.Print(err) // some locks may be missing
			continue
		}
		fmt.Println(info.Name)
	}
	// Unordered output:
	// orders:1
	// orders:2
}

func ExampleLocker_ForceRelease() {
	locker, server, end := exampleLocker()
	defer end()
	ctx := context.Background()
	stuck, err := locker.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	var t locktest.Scope // another process
	defer t.End()
	rescuer := server.Locker(&t, unhurried)
	was, err := rescuer.ForceRelease(ctx, "orders:42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("somebody held it:", was.Held())
	next, err := rescuer.Mutex("orders:42").TryLock(ctx)
	fmt.Println("it was free:", err == nil)
	defer next.Unlock(ctx)

	err = stuck.Unlock(ctx) // the holder notices, if not at a renewal before
	fmt.Println("the holder has lost it:", errors.Is(err, lock.ErrLost))
	// Output:
	// somebody held it: true
	// it was free: true
	// the holder has lost it: true
}

func ExampleLocker_Inspect_permits() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	exports := locker.Permits("exports")
	if _, err := exports.TrySetPermits(ctx, 3); err != nil {
		log.Fatal(err)
	}
	lease, err := exports.One().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	info, err := locker.Inspect(ctx, "exports", driver.KindPermit)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("available:", info.Count)
	for _, holder := range info.Holders {
		fmt.Println("in use, this one:", holder.Owner == lease.Owner())
	}
	// Output:
	// available: 2
	// in use, this one: true
}

func ExampleLocker_Inspect_semaphore() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	downloads := locker.Semaphore("downloads")
	if _, err := downloads.TrySetPermits(ctx, 3); err != nil {
		log.Fatal(err)
	}
	for _, kind := range []driver.Kind{driver.KindSemaphore, driver.KindMutex} { // a number does not show its kind
		info, err := locker.Inspect(ctx, "downloads", kind)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v, count %d, foreign %q\n", info.Kind, info.Count, info.Foreign)
	}
	// Output:
	// semaphore, count 3, foreign ""
	// mutex, count 3, foreign "string"
}

func ExampleLocker_Inspect_latch() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	ready := locker.Latch("ready")
	if _, err := ready.TrySetCount(ctx, 2); err != nil {
		log.Fatal(err)
	}
	info, err := locker.Inspect(ctx, "ready", driver.KindLatch)
	fmt.Println(info.Kind, info.Count, err)
	// Output: countdown latch 2 <nil>
}
