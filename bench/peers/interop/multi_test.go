//go:build real

package interop

import (
	"fmt"
	"testing"
	"time"
)

// TestMultiLocks acquires the same two locks together on both sides, in the same order and in
// reverse.
func TestMultiLocks(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		for _, order := range []string{"same", "reverse"} {
			t.Run(order+" order", func(t *testing.T) {
				t.Parallel()
				s := single(t)
				java, wheel := open(t, ownRedisson(t, version), s.address), open(t, golang(t), s.address)
				var turns map[string]int
				record(t, "10 multi-lock, "+order+" order", java.name, "multi", both, func() string {
					return fmt.Sprintf("Go %d, Java %d grants", turns["Go"], turns["Java"])
				})
				a, b := fresh("a"), fresh("b")
				names := map[bool]string{true: a + "," + b, false: b + "," + a}
				w := newContest(t, s, 1)
				w.name = a + "," + b
				w.work(wheel, 2, "multi", "listen", 1, 1, "Go")
				w.name = names[order == "same"]
				w.work(java, 2, "multi", "listen", 1, 1, "Java")
				turns = w.run(min(*soakFor, 5*time.Second), eachHad(5, "Go", "Java"))
			})
		}
	})
}
