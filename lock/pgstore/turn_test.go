package pgstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A step that hangs delays others on its name once.
func TestTurnOfAStepThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Store
		hangs := s.turn(t.Context(), "a")
		begin := time.Now()
		s.turn(t.Context(), "a", "b")()
		assert.Equal(t, longestTurn, time.Since(begin))
		ended, end := context.WithCancel(t.Context())
		end()
		s.turn(ended, "a")()
		assert.Equal(t, longestTurn, time.Since(begin))
		hangs()
		s.turn(t.Context(), "a", "b")()
		assert.Equal(t, longestTurn, time.Since(begin))
	})
}
