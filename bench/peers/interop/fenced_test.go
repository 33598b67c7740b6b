//go:build real

package interop

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFencingTokensGrowAcrossSides acquires a fenced lock from both sides in turn, with a
// short life of our counter: longer than a turn of a JVM that has locked before.
func TestFencingTokensGrowAcrossSides(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		for _, first := range []string{"Java", "Go"} {
			t.Run(first+" first", func(t *testing.T) {
				t.Parallel()
				s := single(t)
				java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address, "fence=4000")
				record(t, "7 fenced: tokens after the counter's life, "+first+" first", java.name, "fenced", both, nil)
				name := fresh("fenced")
				require.NotEqual(t, "0", java.do("warm up", "lock", "fenced", fresh("warm up"), never, renewed))
				sides := []*client{java, wheel}
				if first == "Go" {
					sides = []*client{wheel, java}
				}
				var last int64
				for i := range 6 {
					c := sides[i%2]
					text := c.do("a", "lock", "fenced", name, never, renewed)
					token, err := strconv.ParseInt(text, 10, 64)
					require.NoError(t, err)
					require.Greater(t, token, last, "the token of %s after another side's", c.name)
					last = token
					c.do("a", "unlock", "fenced", name)
					if i >= 2 && i <= 4 { // each side has counted, and ours has detected that
						time.Sleep(4500 * time.Millisecond) // longer than the counter's life
					}
				}
				assert.Equal(t, time.Duration(-1), s.keys.PTTL(t.Context(), "redisson_lock_token:{"+name+"}").Val(), "a counter that Java counts with must not expire")
			})
		}
	})
}
