package idempotency_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// TestMain is also the entry point of the processes that a test starts.
func TestMain(m *testing.M) {
	serveAsProcess()
	testmain.Run(m)
}
