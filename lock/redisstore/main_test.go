package redisstore_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// TestMain is also the entry point of the processes that some tests start.
func TestMain(m *testing.M) {
	if url := os.Getenv(fairWaiters); url != "" {
		if err := waitFairly(url, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if url := os.Getenv(permitUsers); url != "" {
		if err := usePermits(url, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Parallel(16)
	redistest.Main(m)
}
