package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/memstore"
)

func ExampleNew() {
	ctx := context.Background()
	locker, err := lock.New(memstore.New(), lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	lease, err := locker.Mutex("orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.Mutex("orders:42").TryLock(ctx)
	fmt.Println("while it is held:", errors.Is(err, lock.ErrNotAcquired))
	fmt.Println("unlocked:", lease.Unlock(ctx) == nil)
	// Output:
	// while it is held: true
	// unlocked: true
}

// Two stores of the same locks stand for two processes, such as the replicas of a service.
func ExampleStore_Open() {
	ctx := context.Background()
	here := memstore.New()
	defer here.Close()
	there := here.Open()
	defer there.Close()
	replica := func(store lock.Store) *lock.Locker {
		locker, err := lock.New(store, lock.Config{})
		if err != nil {
			log.Fatal(err)
		}
		return locker
	}
	one, other := replica(here), replica(there)
	defer one.Close()
	defer other.Close()

	lease, err := one.Mutex("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- other.Mutex("report").Do(ctx, func(context.Context) error { return nil }) }()
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the other one has held it:", <-done == nil)
	// Output: the other one has held it: true
}

// Lost data cost the holder its lease, at its next renewal.
func ExampleStore_DeleteFunc() {
	ctx := context.Background()
	store := memstore.New()
	defer store.Close()
	locker, err := lock.New(store, lock.Config{TTL: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	lease, err := locker.Mutex("report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	store.DeleteFunc(func(name string) bool { return name == "report" })
	<-lease.Lost()
	fmt.Println(errors.Is(lease.Err(), lock.ErrLost))
	// Output: true
}
