//go:build linux && real

package filestore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
)

func TestInRealTime(t *testing.T) {
	t.Parallel()
	s, err := linux()
	require.NoError(t, err)
	drivertest.Run(t, drivertest.Suite{Backend: func(t testing.TB) drivertest.Backend { return backend(t, s) }})
}

func TestAThousandKilledProcesses(t *testing.T) {
	t.Parallel()
	killMany(t, 1000)
}
