package wheel

import (
	"math/bits"
	"runtime"
	"time"
	"unsafe"

	"github.com/leasewheel/leasewheel/bucket"
	"github.com/leasewheel/leasewheel/timeout"
)

// A shard is one of a wheel's inboxes. There are several, so that goroutines that
// schedule at the same time seldom contend for one lock.
//
// Nodes from its slabs stay with one shard for life. Timers belong to none.
type shard struct {
	wheel *Wheel
	inbox bucket.Inbox
	owner timeout.Owner // of the nodes from its slabs
}

// newShards makes eight shards for each processor, rounded up to a power of two, at most
// 64. So of P goroutines that run at the same time another one uses the same shard with a
// chance of (P−1)/8P for up to eight processors, and P/64 beyond. Sharing costs 50 to 100 ns,
// a cache line of another processor.
func newShards(w *Wheel) []shard {
	procs := min(runtime.GOMAXPROCS(0), 8)
	shards := make([]shard, 8<<bits.Len(uint(procs-1)))
	for i := range shards {
		s := &shards[i]
		s.wheel = w
		s.owner = timeout.Owner{Engine: s, Pooled: true}
		s.inbox.Init(&s.owner)
	}
	return shards
}

// shard returns the shard of the calling goroutine, which goroutines that run at the same
// time are unlikely to share. Stacks lie apart, so hashing their addresses distinguishes
// goroutines for the price of a multiplication.
func (w *Wheel) shard() *shard {
	var here byte
	at := uint64(uintptr(unsafe.Pointer(&here)) >> 11)
	const golden = 0x9E3779B97F4A7C15
	return &w.shards[(at*golden)>>w.shardShift]
}

// A shard is the engine of its one-shot tasks.
var _ timeout.Engine = (*shard)(nil)

// After implements [timeout.Engine].
func (s *shard) After(d time.Duration) timeout.Tick { return s.wheel.ticks.after(d) }

// At implements [timeout.Engine].
func (s *shard) At(t time.Time) timeout.Tick { return s.wheel.tickAt(t) }

// Time implements [timeout.Engine].
func (s *shard) Time(k timeout.Tick) time.Time { return s.wheel.ticks.time(k) }

// Cancelled implements [timeout.Engine].
func (s *shard) Cancelled(e *timeout.Entry, life uint64) {
	s.wheel.unreserve()
	if s.inbox.Cancelled(bucket.Of(e), life) {
		s.wheel.reclaimSoon()
	}
}

// Rearm implements [timeout.Engine].
func (s *shard) Rearm(e *timeout.Entry, life uint64, tick timeout.Tick) bool {
	by, ok := s.inbox.Move(bucket.Of(e), life, tick)
	s.wheel.needBy(by)
	return ok
}

// put schedules a one-shot task.
func (s *shard) put(tick timeout.Tick, task func()) (Timeout, error) {
	w := s.wheel
	if w.limit != 0 && !w.reserve() {
		return Timeout{}, w.full()
	}
	t, by, ok := s.inbox.Put(tick, task)
	if !ok {
		w.unreserve()
		return Timeout{}, ErrStopped
	}
	w.needBy(by)
	return t, nil
}
