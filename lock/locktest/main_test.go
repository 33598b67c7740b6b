package locktest_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	redistest.Parallel(16)
	testmain.Run(m)
}
