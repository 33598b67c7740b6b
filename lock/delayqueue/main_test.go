package delayqueue_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// TestMain runs more tests at a time than there are processors: most of their time
// they wait.
func TestMain(m *testing.M) {
	if url := os.Getenv(chaosWorker); url != "" {
		if err := workInChaos(url); err != nil {
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
