//go:build linux

package chaos

import (
	"os"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// TestMain makes a worker of a process that was started as one.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(work())
	}
	testmain.Run(m)
}
