//go:build real

package interop

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeletedLatchOpens deletes a latch for which the other side waits.
func TestDeletedLatchOpens(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		for _, d := range directions(java, wheel) {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				var text string
				record(t, "9 latch: deleted", java.name, "latch", d.name, func() string { return text })
				h, w := d.holder.of(t), d.waiter.of(t)
				median := timed(t, s, func(name string) <-chan reply {
					require.Equal(t, "1", h.do("a", "latch.set", name, 3))
					return w.begin("b", "latch.await", name, 20_000)
				}, func(name string) { assert.Equal(t, "1", h.do("a", "latch.delete", name)) })
				text = woken(median)
				assert.Less(t, median, awake, "nobody woke the waiter")
			})
		}
	})
}
