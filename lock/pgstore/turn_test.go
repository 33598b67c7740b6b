package pgstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Steps on a name follow each other, unless one hangs, and leave nothing.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := turns{of: make(map[string]*turn)}
		inside := 0
		for range 10 {
			go func() {
				give := turns.take(t.Context(), []string{"a", "b"})
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

		hangs := turns.take(t.Context(), []string{"a"})
		begin := time.Now()
		turns.take(t.Context(), []string{"a", "b"})()
		assert.Equal(t, longestTurn, time.Since(begin))
		ended, end := context.WithCancel(t.Context())
		end()
		turns.take(ended, []string{"a"})()
		assert.Equal(t, longestTurn, time.Since(begin))
		hangs()
		require.Empty(t, turns.of)
	})
}
