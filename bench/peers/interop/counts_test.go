//go:build real

package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNumbersThatChangeWhileOthersWait changes numbers of permits in every way on one side, while
// the other waits.
func TestNumbersThatChangeWhileOthersWait(t *testing.T) {
	rows := []struct {
		name    string
		waiters int
		wait    []any // the request of each
		change  func(h *client, name string)
	}{
		{"semaphore: three at once, returned one by one", 1, []any{"semaphore.acquire", 3, forever}, func(h *client, name string) {
			h.do("a", "semaphore.set", name, 1)
			h.do("a", "semaphore.release", name, 1)
			h.do("a", "semaphore.release", name, 1)
		}},
		{"semaphore: added", 3, []any{"semaphore.acquire", 1, forever}, func(h *client, name string) {
			h.do("a", "semaphore.add", name, 3)
		}},
		{"semaphore: taken back, then set for all", 3, []any{"semaphore.acquire", 2, forever}, func(h *client, name string) {
			h.do("a", "semaphore.set", name, 1)
			h.do("a", "semaphore.drain", name)
			h.do("a", "semaphore.add", name, 6)
		}},
		{"permits: added, then set", 3, []any{"permits.acquire", forever, 300_000}, func(h *client, name string) {
			h.do("a", "permits.add", name, 1)
			h.do("a", "permits.reset", name, 3)
		}},
	}
	eachThat(t, func(version string) bool { return atLeast(version, "3.22.0") }, func(t *testing.T, version string) { // setPermits
		s := single(t)
		java, wheel := open(t, redisson(t, version), s.address), open(t, golang(t), s.address)
		for _, d := range directions(java, wheel) {
			for _, row := range rows {
				t.Run(d.name+" "+row.name, func(t *testing.T) {
					t.Parallel()
					record(t, "8 numbers that change while others wait: "+row.name, java.name, "counts", d.name, nil)
					h, w := d.holder.of(t), d.waiter.of(t)
					name := fresh("number")
					var granted []<-chan reply
					for i := range row.waiters {
						granted = append(granted, w.begin(fmt.Sprint(i), row.wait[0].(string), append([]any{name}, row.wait[1:]...)...))
					}
					s.awaitListeners(t, name, 1)
					changed := time.Now()
					row.change(h, name)
					for _, c := range granted {
						r := await(t, c)
						require.NoError(t, r.err)
						assert.NotEqual(t, "0", r.text)
						assert.Less(t, r.at.Sub(changed), awake, "it was not woken")
					}
				})
			}
		}
	})
}
