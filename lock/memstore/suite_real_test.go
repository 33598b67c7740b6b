//go:build real

package memstore_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
)

func TestInRealTime(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Suite{Backend: intact})
}
