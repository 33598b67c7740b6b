//go:build real

package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlainLocks checks plain locks of each library against ours and the other way round:
// exclusion, expiry, and prolongation by the holder.
func TestPlainLocks(t *testing.T) {
	s := single(t)
	for _, peer := range []struct {
		library string
		driver  func(t *testing.T) *driver
	}{
		{"redis-py", python}, {"redlock", node}, {"redlock-universal", node}, {"redsync", golang}, {"redislock", golang},
	} {
		t.Run(peer.library, func(t *testing.T) {
			t.Parallel()
			them, wheel := open(t, peer.driver(t), s.address), open(t, golang(t), s.address, "format=plain")
			record(t, "plain: exclusion, expiry, prolongation", peer.library, "plain", both, nil)
			name := fresh("plain")
			require.NotEqual(t, "0", them.do("a", "lock", peer.library, name, never, 10_000))
			assert.Equal(t, "0", wheel.do("b", "lock", "plain", name, never, renewed), "a lock that they hold")
			them.do("a", "extend", name, 20_000)
			assert.Equal(t, "0", wheel.do("b", "lock", "plain", name, never, renewed), "a lock that they have prolonged")
			granted := wheel.begin("b", "lock", "plain", name, 20_000, renewed)
			them.do("a", "unlock", peer.library, name)
			r := await(t, granted)
			require.NoError(t, r.err)
			require.NotEqual(t, "0", r.text, "a lock that they gave back")
			assert.Equal(t, "0", them.do("a", "lock", peer.library, name, never, 10_000), "a lock that we hold")
			wheel.do("b", "unlock", "plain", name)
			begun := time.Now()
			require.NotEqual(t, "0", them.do("a", "lock", peer.library, name, 20_000, short), "a lock that we gave back")
			require.NotEqual(t, "0", wheel.do("b", "lock", "plain", name, 20_000, renewed), "a lock that has expired")
			assertShortIsOver(t, begun)
			_, err := them.try("a", "unlock", peer.library, name)
			assert.Equal(t, "0", them.do("c", "lock", peer.library, name, never, 10_000), "whatever the holder of an expired lock was told (%v), ours is left alone", err)
			wheel.do("b", "unlock", "plain", name)
		})
	}
}
