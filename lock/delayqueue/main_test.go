package delayqueue_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// TestMain is also the entry point of the processes that a test starts.
func TestMain(m *testing.M) {
	if url := os.Getenv(chaosWorker); url != "" {
		if err := workInChaos(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := flag.Set("rapid.checks", "25"); err != nil { // 100 otherwise; -rapid.checks takes precedence
		panic(err)
	}
	redistest.Parallel(8)
	testmain.Run(m)
}
