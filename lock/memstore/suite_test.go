package memstore_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/backend"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	redistest.Parallel(64)
	testmain.Run(m)
}

// TestSuiteReportsFaults runs it once more for each fault.
func TestInBubble(t *testing.T) {
	of := intact
	if name, broken := os.LookupEnv(brokenStore); broken {
		require.Contains(t, faults, name)
		of = faults[name].backend
	}
	drivertest.Run(t, drivertest.Suite{Backend: of, Bubble: true})
}

func intact(testing.TB) drivertest.Backend {
	return backend.InMemory(1, func(_ testing.TB, memories ...backend.Memory) driver.Store { return memories[0] })
}
