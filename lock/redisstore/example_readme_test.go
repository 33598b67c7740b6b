package redisstore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The lock of README.md, verbatim, on a server in this process.
func Example_readme() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	os.Setenv("REDIS_URL", "redis://"+server.Addr())
	defer os.Unsetenv("REDIS_URL")

	if err := readmeLock(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: shipped under a token above zero: true
}

// The same for a deferred function.
func Example_readmeDeferred() {
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
	locker, err := lock.New(store, lock.Config{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	if err := readmeDeferred(context.Background(), locker); err != nil {
		fmt.Println(err)
	}
	// Output: settled: true
}

func settle(ctx context.Context) error {
	fmt.Println("settled:", ctx.Err() == nil)
	return nil
}

func readmeDeferred(ctx context.Context, locker *lock.Locker) error {
	deferred, err := locker.Mutex("account:7").Go(ctx, func(ctx context.Context) error {
		return settle(ctx) // the context ends if the lease is lost
	})
	if err != nil {
		return err // such as ErrTooManyDeferred; it will not run
	}
	return deferred.Wait(ctx) // or look at it later, or not at all
}

func ship(_ context.Context, token int64) error {
	fmt.Println("shipped under a token above zero:", token > 0)
	return nil
}

func readmeLock(ctx context.Context) error {
	store, err := redisstore.Open(os.Getenv("REDIS_URL"), redisstore.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	locker, err := lock.New(store, lock.Config{}) // leases of 30 s, renewed every 10 s
	if err != nil {
		return err
	}
	defer locker.Close()

	lease, err := locker.Mutex("orders:42").Lock(ctx) // waits until it is granted
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	return ship(lease.Context(), lease.Token()) // the context ends if the lease is lost
}
