package quorum_test

import (
	"flag"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// TestMain runs more tests at a time than there are processors: most of their time
// they wait, for leases to end and nodes that do not answer.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	redistest.Main(m)
}
