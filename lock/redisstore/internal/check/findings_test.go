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
	const give = time.Millisecond
	options := driver.CheckOptions{TTL: 10 * time.Second}
	for difference, want := range map[time.Duration]string{
		103 * time.Millisecond: "", 105 * time.Millisecond: "105ms ahead of the master's", -105 * time.Millisecond: "105ms behind the master's",
	} {
		replica := &examination{options: options, server: driver.Server{Ahead: time.Hour + difference, AheadError: give}}
		compareReplicas([]*examination{{server: driver.Server{Ahead: time.Hour, AheadError: give}}, replica})
		if want == "" {
			assert.Empty(t, replica.findings)
			continue
		}
		require.Len(t, replica.findings, 1, difference)
		assert.Contains(t, replica.findings[0].Found, want)
	}
}
