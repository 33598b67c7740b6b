package redisstore_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// TestMain runs more tests at a time than there are processors: most of their time
// they wait, for leases to end and servers to fail over.
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
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}
