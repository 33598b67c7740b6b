package quorum_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	redistest.Parallel(5)
	testmain.Run(m)
}
