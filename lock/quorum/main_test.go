package quorum_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

func TestMain(m *testing.M) {
	redistest.Parallel(5)
	redistest.Main(m)
}
