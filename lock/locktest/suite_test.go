package locktest_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	redistest.Parallel(16)
	testmain.Run(m)
}

// inProcess is the backend of this package's own server.
func inProcess(t testing.TB) locktest.Backend {
	server := locktest.Start(t)
	return locktest.Backend{
		Open:   func(t testing.TB) driver.Store { return server.Store(t) },
		Delete: server.Delete,
	}
}

func TestInBubble(t *testing.T) {
	locktest.Run(t, locktest.Suite{Backend: inProcess, Bubble: true})
}
