package redisstore_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// TestMain is also the entry point of the processes that some tests start.
func TestMain(m *testing.M) {
	workAsProcess()
	redistest.Parallel(16)
	testmain.Run(m)
}
