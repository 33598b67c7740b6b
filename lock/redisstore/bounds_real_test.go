//go:build real

package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// A hundred thousand dead entries, or members of 2 MB, delay no run of a script by more
// than a moment.
func TestHugeValuesTakeLittleTime(t *testing.T) {
	for _, c := range hugeValues() {
		t.Run(c.name, func(t *testing.T) {
			server, admin := startServer(t)
			store := open(t, server.Client(t))
			fillWith(t, admin, 100_000, c.fill)
			for i, do := range c.do {
				before := worked(t, admin)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				err := do(ctx, store)
				cancel()
				require.NotErrorIs(t, err, driver.ErrUnavailable, "request %d", i)
				spent := worked(t, admin) - before
				t.Logf("request %d: %v of the server's processor, its own chores with it", i, spent)
				assert.Less(t, spent, 60*time.Millisecond, "request %d", i)
			}
		})
	}
}
