package wheel

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/timeout"
)

// Goroutines that schedule for the next tick are interrupted, and their timeouts arrive when
// the worker has passed that tick. They run in the order of their deadlines, whichever inbox
// they are in, and before what is due later.
func TestArrivalsThatAreDueAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Config{Tick: ms})
		Must(w.Schedule(10*ms, func() { time.Sleep(10 * ms) }))
		time.Sleep(15 * ms) // the worker is in that task, at tick 10
		var ran []timeout.Tick
		put := func(s *shard, tick timeout.Tick) {
			Must(s.put(tick, func() { ran = append(ran, tick) }))
		}
		first, last := &w.shards[0], &w.shards[len(w.shards)-1]
		put(first, 12)
		put(first, 8)
		put(first, 6)
		put(last, 7)
		put(last, 9)
		var timer Timer
		timer.Init(w, func() { ran = append(ran, 5) })
		Must(last.arm(&timer.node, 5))
		pass(10 * ms)
		want := []timeout.Tick{5, 6, 7, 8, 9, 12}
		check(t, slices.Equal(ran, want), "they ran in the order %v", ran)
	})
}
