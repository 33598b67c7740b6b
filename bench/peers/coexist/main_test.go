//go:build real

package coexist

import (
	"fmt"
	"os"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// TestMain makes a worker of a process that was started as one.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) == "" {
		redistest.Parallel(8)
		testmain.Run(m)
		return
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
