//go:build linux

package chaos

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// A lease that ends before the driver's first look is not reported as valid after its
// grant. Such leases occur on a busy machine, and the checker would count a second holder.
func TestLeaseThatWasNeverSeenValidIsReportedSo(t *testing.T) {
	l, err := lock.New(locktest.Start(t).Store(t), lock.Config{RequestTimeout: time.Minute})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	lease, err := l.Mutex("a").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))

	var out bytes.Buffer
	w := &worker{report: writeTo(&out)}
	w.hold(1, handle{}, lease, wish{hold: time.Second})
	var got, end event
	lines := json.NewDecoder(&out)
	require.NoError(t, lines.Decode(&got))
	require.NoError(t, lines.Decode(&end))
	require.Equal(t, []string{evGot, evEnd}, []string{got.What, end.What})
	require.Equal(t, got.At, end.At)
}
