package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// The clocks of a master and its replica may differ by a lease's margin.
func TestReplicaClocks(t *testing.T) {
	t.Parallel()
	const ttl, give = 10 * time.Second, time.Millisecond
	for difference, want := range map[time.Duration]string{
		103 * time.Millisecond: "", 105 * time.Millisecond: "105ms ahead of the master's", -105 * time.Millisecond: "105ms behind the master's",
	} {
		found := compareReplicas([]*examination{
			{server: driver.Server{Ahead: time.Hour, AheadError: give}},
			{server: driver.Server{Ahead: time.Hour + difference, AheadError: give}},
		}, ttl)
		if want == "" {
			assert.Empty(t, found)
			continue
		}
		require.Len(t, found, 1, difference)
		assert.Contains(t, found[0].Found, want)
	}
}
