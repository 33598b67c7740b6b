package transport

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The nodes of a cluster change their addresses again and again. Of those that are gone nothing
// stays; of the others what is of use.
func TestNodesThatChangeTheirAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(nil, 0, 0)
		kept := func() (n int) {
			for range tr.kept.Range {
				n++
			}
			return n
		}
		busy := tr.nodeAt("busy:1")
		busy.requests.inFlight = 1
		used := tr.nodeAt("used:1")
		for i := range 1000 {
			used.clock.reading.Store(&Reading{Sent: time.Now()})
			gone := tr.nodeAt(fmt.Sprintf("gone:%d", i))
			gone.clock.reading.Store(&Reading{Sent: time.Now()})
			time.Sleep(readingLife / 2)
		}
		require.LessOrEqual(t, kept(), 4)
		require.Same(t, used, tr.nodeAt("used:1"))
		require.Same(t, busy, tr.nodeAt("busy:1"))
	})
}
