//go:build real

package locktest_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// Outside a bubble the server keeps real time. It does so for the TTLs of keys, by which
// mutexes end, and for the time that scripts read, by which permits end. TestInBubble runs
// the scripts of every kind.
func TestInProcess(t *testing.T) {
	locktest.Run(t, locktest.Suite{Backend: inProcess, Tested: []driver.Kind{driver.KindMutex, driver.KindPermit}})
}
