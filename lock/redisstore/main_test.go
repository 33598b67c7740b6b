package redisstore_test

import (
	"flag"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// TestMain runs more tests at a time than there are processors: most of their time
// they wait, for leases to end and servers to fail over.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}
