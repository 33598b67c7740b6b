package memstore_test

import (
	"context"
	"fmt"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/memstore"
)

// The lock of README.md, verbatim.
func Example_readme() {
	fmt.Println(readmeLock(context.Background()))
	// Output:
	// shipped under a token above zero: true
	// <nil>
}

func ship(_ context.Context, token int64) error {
	fmt.Println("shipped under a token above zero:", token > 0)
	return nil
}

func readmeLock(ctx context.Context) error {
	locker, err := lock.New(memstore.New(), lock.Config{}) // or on Redis, or in files
	if err != nil {
		return err
	}
	defer locker.Close()
	lease, err := locker.Mutex("orders:42").Lock(ctx) // waits for its turn; then it is renewed
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	return ship(lease.Context(), lease.Token()) // the context ends if the lease is lost
}
