package machine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Steps on a name follow each other, and leave nothing, also if they gave up.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		inside := 0
		for range 10 {
			go func() {
				give, err := turns.Take(t.Context(), "a", "b")
				if !assert.NoError(t, err) {
					return
				}
				defer give()
				inside++
				assert.Equal(t, 1, inside)
				time.Sleep(10 * time.Millisecond)
				inside--
			}()
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, turns.of)

		give, err := turns.Take(t.Context(), "b")
		require.NoError(t, err)
		ended, end := context.WithCancel(t.Context())
		end()
		_, err = turns.Take(ended, "b")
		require.ErrorIs(t, err, context.Canceled)
		_, err = turns.Take(ended, "b", "c")
		require.ErrorIs(t, err, context.Canceled)
		give()
		require.Empty(t, turns.of)
	})
}
