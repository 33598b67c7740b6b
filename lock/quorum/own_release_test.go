package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A clock may give several events one instant, as that of a bubble does. Then a message that was
// ignored, or a refusal, counts as the later one: a waiter that is woken once too often loses
// nothing, and one that is not woken waits for the end of a lease of its own.
func TestOwnReleaseAtOneInstant(t *testing.T) {
	t.Parallel()
	now := time.Now()

	var ignored ownRelease
	ignored.expect("a", now, now.Add(time.Second))
	assert.True(t, ignored.ignores(now))
	assert.True(t, ignored.cancel(now), "the message was missed")
	assert.False(t, ignored.cancel(now), "once")

	refused := ownRelease{refused: "b", refusedAt: now}
	refused.expect("a", now, now.Add(time.Second))
	assert.False(t, refused.ignores(now), "the refused attempt waits for it")

	earlier := ownRelease{refused: "b", refusedAt: now.Add(-1)}
	earlier.expect("a", now, now.Add(time.Second))
	assert.True(t, earlier.ignores(now))
	assert.False(t, earlier.cancel(now.Add(1)), "it came before")
}
