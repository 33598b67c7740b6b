package wheel

import (
	"iter"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// All returns the timeouts that are pending at the moment when the iteration
// begins, in no particular order. Some may be over by the time they are
// visited. The loop's body may call everything in this package.
//
// Taking stock keeps the worker and those who schedule waiting, for about ten
// milliseconds per million timeouts.
func (w *Wheel) All() iter.Seq[timeout.Timeout] {
	return func(yield func(timeout.Timeout) bool) {
		var pending []timeout.Timeout
		w.nodes(func(n *bucket.Node) bool {
			if _, ok := n.PendingTick(); ok {
				pending = append(pending, n.Timeout())
			}
			return true
		})
		for _, t := range pending {
			if t.State() == timeout.Pending && !yield(t) {
				return
			}
		}
	}
}
