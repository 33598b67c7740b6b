package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Which release a message belongs to is decided by the order of events: a clock may give several
// one instant, as that of a bubble does.
func TestOwnReleases(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)

	var ignored ownReleases
	ignored.expect("a", 1, until)
	assert.True(t, ignored.ignores(3))
	assert.True(t, ignored.cancelOthers("b", 2), "the message was missed")
	assert.False(t, ignored.cancelOthers("b", 2), "once")

	refused := ownReleases{refused: "b", refusedAt: 2}
	refused.expect("a", 1, until)
	assert.False(t, refused.ignores(3), "the refused attempt waits for it")

	earlier := ownReleases{refused: "b", refusedAt: 1}
	earlier.expect("a", 2, until)
	assert.True(t, earlier.ignores(3))
	assert.False(t, earlier.cancelOthers("b", 4), "it came before")

	var several ownReleases
	several.expect("a", 1, until)
	several.expect("b", 2, until)
	assert.True(t, several.ignores(3))
	assert.False(t, several.cancel("a"), "the message was the other one's")
	assert.False(t, several.ignores(4), "whose it is")
	assert.True(t, several.cancel("b"), "it was neither's")
}
