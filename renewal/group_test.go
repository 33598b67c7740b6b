package renewal

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A lane gives out its leases in the order of their until, however many wait, and whether
// or not some of them have ended meanwhile.
func TestLaneIsInOrder(t *testing.T) {
	var n lane
	var waiting []instant // sorted
	pop := func() {
		if until := n.pop().at; until != waiting[0] {
			t.Fatalf("got %v before %v, of %d", until, waiting[0], len(waiting))
		}
		waiting = waiting[1:]
	}
	for range 100 {
		push := func() { // the more wait, the earlier: new ones are soon first
			e := queueEntry{at: instant(1e6 - len(waiting)*1000 + rand.IntN(1000)), lease: &Lease{phase: queued, place: new(list)}}
			n.push(e)
			at, _ := slices.BinarySearch(waiting, e.at)
			waiting = slices.Insert(waiting, at, e.at)
		}
		for range 100 + rand.IntN(900) {
			push()
		}
		for range 300 {
			pop()
			push()
		}
		for range 10 {
			e := n.queue[rand.IntN(len(n.queue))]
			e.lease.phase = collected
			n.prune()
			at, _ := slices.BinarySearch(waiting, e.at)
			waiting = slices.Delete(waiting, at, at+1)
		}
		for len(waiting) > 0 {
			pop()
		}
		require.Empty(t, n.queue)
	}
}
