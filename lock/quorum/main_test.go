package quorum_test

import (
	"flag"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "20"); err != nil { // 100 otherwise; -rapid.checks takes precedence
		panic(err)
	}
	redistest.Parallel(20)
	testmain.Run(m)
}
