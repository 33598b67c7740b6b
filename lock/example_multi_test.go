package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/leasewheel/leasewheel/lock"
)

func ExampleAll() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()

	// Two transfers in opposite directions do not deadlock: both take account:a first.
	transfer := func(from, to string) error {
		return lock.All(locker.Mutex(from), locker.Mutex(to)).Do(ctx, func(ctx context.Context) error {
			fmt.Println("from", from, "to", to)
			return ctx.Err()
		})
	}
	if err := transfer("account:b", "account:a"); err != nil {
		log.Fatal(err)
	}
	if err := transfer("account:a", "account:b"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// from account:b to account:a
	// from account:a to account:b
}

func ExampleMulti_TryLock() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()
	lease, err := locker.Mutex("seat:12").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	_, err = lock.All(locker.Mutex("seat:11"), locker.Mutex("seat:12")).TryLock(ctx)
	var taken *lock.NotAcquiredError
	if errors.As(err, &taken) {
		fmt.Println("taken:", taken.Name)
	}
	// Output: taken: seat:12
}

func ExampleLease_Tokens() {
	locker, _, end := exampleLocker()
	defer end()
	ctx := context.Background()

	lease, err := lock.All(locker.Mutex("stock"), locker.Mutex("orders")).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	tokens := lease.Tokens() // token of stock, token of orders
	fmt.Println("tokens:", len(tokens), "growing with every grant of their lock")
	// Output: tokens: 2 growing with every grant of their lock
}
