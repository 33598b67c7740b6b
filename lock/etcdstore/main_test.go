package etcdstore

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	redistest.Parallel(16)
	testmain.Run(tests{m})
}

// tests ends the shared cluster after the tests.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	defer shared.run()
	return t.m.Run()
}
