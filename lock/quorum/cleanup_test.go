package quorum

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// released is a node that confirms every release.
type released struct{ driver.Store }

func (released) Group(string, any) string { return "" }

func (released) Release(context.Context, *driver.Hold) (bool, error) { return true, nil }

// Close sends the last release of each leftover. One that comes as run ends is either found
// by run or starts it again: there is no instant between the two.
func TestLeftoverThatComesAsCleanupEnds(t *testing.T) {
	s := &Store{config: Config{}.withDefaults()}
	s.open, s.shut = context.WithCancel(t.Context())
	n := &node{Store: released{}}
	n.cleanup.init(s, n)
	w := n.cleanup.backlog(&driver.Hold{})
	w.leftovers, w.running = []leftover{{}}, true
	s.shut()
	_, ok := w.takeLast(t.Context())
	require.True(t, ok)
	_, ok = w.takeLast(t.Context())
	require.False(t, ok)
	w.put(leftover{})
	s.work.Wait()
	require.Empty(t, w.leftovers)

	over, cancel := context.WithCancel(t.Context())
	cancel()
	w.leftovers, w.running = []leftover{{}}, true
	_, ok = w.takeLast(over)
	require.False(t, ok)
	w.put(leftover{})
	s.work.Wait()
	require.Len(t, w.leftovers, 2, "they are left to their TTL")
}
